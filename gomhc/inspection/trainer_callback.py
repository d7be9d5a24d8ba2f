"""A callback that lets the Trainer of transformers log what the streams do."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gomhc.inspection.inspect_model import inspect


class InspectionCallback(TrainerCallback):
    """Log `Inspection.summary` of the model on some tokens in the trainer's own log, at regular steps.

        trainer.add_callback(InspectionCallback(trainer, tokens, every=100))

    Args:
        trainer: the trainer whose model is inspected.
        tokens: (batch, time), what the model is inspected on.
        attention_mask: (batch, time), zero where a token does not count.
        every: steps between two inspections.
    """

    def __init__(
        self, trainer: Trainer, tokens: Tensor, *, attention_mask: Tensor | None = None, every: int = 100
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.trainer = trainer
        self.tokens = tokens
        self.attention_mask = attention_mask
        self.every = every

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self.every != 0:
            return
        model: Any = self.trainer.accelerator.unwrap_model(kwargs["model"])
        mask = None if self.attention_mask is None else self.attention_mask.to(model.device)
        self.trainer.log(inspect(model, self.tokens.to(model.device), mask).summary())
