"""How do epochs and final loss grow with the number of streams? (fig. 8)"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, select

POWERS = (2, 4, 8, 16, 32)


class Fig8(Experiment):
    """Epochs to converge and final loss over d."""

    name = "fig8"
    title = "Epochs to converge and final loss over the number of streams"
    paper = (
        "Fig. 8: go-mHC needs steadily more epochs as d grows to 32, and reaches the floor as mHC-lite does (d ≤ 7), "
        "which is said not to depend on d, while KromHC's final loss grows away from it. At d = 32 go-mHC takes "
        "longer and ends lower."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        if scale == "quick":
            few: Sizes = {"num_targets": 32, "num_epochs": 2500}
            return [
                *(ToyRun(method=method, num_streams=d, **few) for method in ("go-s2", "kromhc") for d in (2, 4, 8, 16)),
                *(ToyRun(method="mhc-lite", num_streams=d, num_targets=8, num_epochs=6000) for d in (2, 4)),
                *(ToyRun(method="kromhc", num_streams=d, inputs="count", **few) for d in (2, 4, 8, 16)),
            ]
        return [
            *(ToyRun(method="go-s2", num_streams=d, num_epochs=5000) for d in (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)),
            *(ToyRun(method="mhc-lite", num_streams=d, num_epochs=20_000) for d in (2, 3, 4, 5, 6, 7)),
            *(ToyRun(method="kromhc", num_streams=d, num_epochs=10_000) for d in POWERS),
            *(ToyRun(method="kromhc", num_streams=d, inputs="count", num_epochs=10_000) for d in POWERS),
            *(ToyRun(method="go-s2", num_streams=d, inputs="count", num_epochs=5000) for d in (2, 4, 8, 16)),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        found: dict[str, Finding] = {}
        go = _by_streams(records, "go-s2", "converged")
        if len(go) >= 4:
            text = ", ".join(f"d = {d}: {epochs:g}" for d, epochs in go.items())
            found["fig8-epochs"] = Finding(_rank_correlation(list(go), list(go.values())), text)
        finals = {
            (method, d): final / FLOOR
            for method in ("go-s2", "mhc-lite") for d, final in _by_streams(records, method, "final").items()
        }  # fmt: skip
        if finals:
            (method, d), worst = max(finals.items(), key=lambda item: item[1])
            found["fig8-floor"] = Finding(worst, f"at most {worst:.3f} times the floor ({method}, d = {d})")
        lowest = _by_streams(records, "go-s2", "lowest")
        if lowest:
            d = max(lowest)
            text = f"at d = {d} a matrix with unit sums can reach {lowest[d] / FLOOR:.3f} of ε²/3 on the 100 samples"
            found["noise-floor-samples"] = Finding(lowest[d] / FLOOR, text)
        for claim, kind in (("fig8-kromhc", records), ("fig8-kromhc-coded", coded)):
            krom = {d: final / FLOOR for d, final in _by_streams(kind, "kromhc", "final").items()}
            if len(krom) >= 3:
                last, worst = krom[max(krom)], max(krom.values())
                text = ", ".join(f"d = {d}: {value:.3g}" for d, value in krom.items())
                found[claim] = Finding(last if last == worst else 0, f"final loss over the floor: {text}")
        pair = [
            [metric(records, name, method=method, num_streams=32) for name in ("final", "converged")]
            for method in ("go-s2", "kromhc")
        ]
        if all(value is not None for values in pair for value in values):
            (go_loss, go_epochs), (krom_loss, krom_epochs) = pair
            both = go_loss < krom_loss and go_epochs > krom_epochs  # type: ignore[operator]
            text = f"go {go_loss:.4g} after {go_epochs:g} epochs, KromHC {krom_loss:.4g} after {krom_epochs:g}"
            found["fig8-d32"] = Finding(float(both), text)
        return found


FLOOR = 0.1**2 / 3


def _rank_correlation(a: list[int], b: list[float]) -> float:
    """Spearman's, of values without ties."""
    ranks_a, ranks_b = (np.argsort(np.argsort(np.array(values, dtype=float))) for values in (a, b))
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _by_streams(records: Sequence[Record], method: str, name: str) -> dict[int, float]:
    """D -> this metric of this method, ordered."""
    pairs = [(record.configuration["num_streams"], record.metrics[name]) for record in select(records, method=method)]
    return dict(sorted((d, value) for d, value in pairs if value is not None))
