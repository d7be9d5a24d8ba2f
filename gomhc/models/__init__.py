"""Networks with one residual stream or several."""

from __future__ import annotations

from gomhc.models.gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
