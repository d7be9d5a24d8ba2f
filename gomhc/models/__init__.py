"""Which networks are there to try it in?"""

from __future__ import annotations

from gomhc.models.gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
