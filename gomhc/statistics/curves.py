"""Statistics of training curves: the epoch of convergence (app. F.3) and the jitter of gradient norms (app. G.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def epochs_to_converge(losses: ArrayLike, tolerance: float = 0.05) -> int:
    """Return the first epoch whose loss is within `tolerance` of the last loss, relative to it (app. F.3)."""
    curve = np.asarray(losses, dtype=float)
    if curve.ndim != 1 or curve.size == 0:
        raise ValueError(f"losses must be one curve of at least one epoch, got shape {curve.shape}")
    if not np.isfinite(curve[-1]):
        raise ValueError(f"the last loss must be finite, got {curve[-1]}; a run that diverged did not converge")
    return int(np.argmax(np.abs(curve - curve[-1]) <= tolerance * np.abs(curve[-1])))


def gradient_jitter(norms: ArrayLike, window: int = 10) -> NDArray[np.floating]:
    r"""Return J_t = sigma_t / (mu_t + 1e-8) over the last w gradient norms (app. G.2), one for each full window.

    sigma_t is the population standard deviation of the window (divided by w, not by w - 1).
    """
    curve = np.asarray(norms, dtype=float)
    if curve.ndim != 1 or curve.size < window:
        raise ValueError(f"norms must be one curve of at least window={window} steps, got shape {curve.shape}")
    windows = np.lib.stride_tricks.sliding_window_view(curve, window)
    return windows.std(-1) / (windows.mean(-1) + 1e-8)
