"""Loss and gradient norms of language models with each mixing (sec. 5.2, fig. 9, app. G.2).

d = num_streams
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gomhc.lab.comparison.study import STREAMS, stages
from gomhc.lab.comparison.study_claims import study_findings
from gomhc.lab.comparison.study_exhibits import study_exhibits
from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import line, look, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.recipes import RECIPES
from gomhc.lab.results.claim import Claim, Finding, Headline, Rule
from gomhc.lab.results.record import Record, only, select
from gomhc.lab.training import Recipe, Watcher, train
from gomhc.statistics.curves import gradient_jitter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("none", "hc", "mhc", "mhc-lite", "kromhc", "go-s1", "go-s2")
"""Mixings, as recipes name them; none is the plain residual network."""
FEWEST_STEPS = 500
"""Behind the warm-up the gradient settles for some hundreds of steps; with fewer, how steady it is cannot be told."""
POINTS = 300
"""Points of a curve that a record keeps."""


class Curves(Watcher):
    """Keeps what the paper draws."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.gradient_norms: list[float] = []
        self.validation_loss = float("nan")

    def stepped(self, record: Mapping[str, Any]) -> None:
        self.losses.append(record["loss"])
        self.gradient_norms.append(record["gradient_norm"])

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self.validation_loss = record["validation_loss"]


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Run):
    """A recipe, cut down where `steps` or `num_channels` say so, with the streams mixed by `method`."""

    method: str
    num_streams: int = 4
    recipe: str = "tinystories-30m"
    steps: int | None = None
    num_channels: int | None = None
    seed: int = 0

    @property
    def alone(self) -> bool:
        return self.recipe == "tinystories-30m"

    @property
    def full_size(self) -> bool:
        return self.recipe == "tinystories-30m" and self.steps is None

    @property
    def cost(self) -> float:
        recipe = self.training
        return recipe.steps * (0.02 + 2.4e-7 * recipe.tokens_per_step * recipe.num_layers * recipe.num_channels)

    @property
    def training(self) -> Recipe:
        """The recipe; it saves once, at the end."""
        recipe = RECIPES[self.recipe]()
        steps = self.steps or recipe.steps
        small: dict[str, Any] = {
            "num_channels": self.num_channels,
            "num_layers": 2,
            "num_heads": 2,
            "context_length": 64,
            "batch_size": 8,
        }
        return replace(
            recipe,
            mixing=self.method,
            num_streams=self.num_streams,
            start="mean-stream",
            coefficient_learning_rate=None,  # the paper has one rate for all weights
            seed=self.seed,
            steps=steps,
            evaluate_every=steps,
            save_every=steps,
            sample_tokens=0,
            **(small if self.num_channels is not None else {}),
        )

    def execute(self) -> dict[str, Any]:
        curves, recipe = Curves(), self.training
        with tempfile.TemporaryDirectory() as folder:
            done = train(recipe, Path(folder) / "run", watcher=curves)
        if done < recipe.steps:  # the loop stops quietly when it is asked to
            raise KeyboardInterrupt
        stride = max(1, recipe.steps // POINTS)
        last = max(1, recipe.steps // 10)
        return {
            "steps": list(range(0, recipe.steps, stride)),
            "losses": _means(curves.losses, stride),
            "gradient_norms": _means(curves.gradient_norms, stride),
            "last_loss": float(np.mean(curves.losses[-last:])),
            "jitter": float(np.mean(gradient_jitter(curves.gradient_norms[recipe.warmup_steps :]))),
            "largest_norm": max(curves.gradient_norms),
            "validation_loss": curves.validation_loss,
        }


def _means(values: Sequence[float], stride: int) -> list[float]:
    return [round(float(np.mean(values[start : start + stride])), 5) for start in range(0, len(values), stride)]


class TinyLanguageModel(Experiment):
    """Loss, gradient norm and jitter of language models."""

    name = "lm"
    title = "Language models: loss, gradient norm and jitter (fig. 9, app. G.2)"
    paper = (
        "A GPT of 30 M parameters trained on TinyStories reaches the same loss with mHC-lite, KromHC and go-mHC; their "
        "gradient norms are alike and much steadier than those of unconstrained HC (fig. 9, app. G.2). With d = 8, "
        "where mHC-lite is prohibitive, go-mHC with s = 1 trains as KromHC does. Here the corpus at quick and laptop "
        "scale is this library's own stories, by characters."
    )
    constrained = ("mhc-lite", "kromhc", "go-s1", "go-s2")
    order = 100
    claims = (
        Claim("lm-loss", "sec. 5.2, app. G.2", "negligible margin", "All variants train to the same loss.",
              "Largest relative difference of the smoothed last losses, mHC-lite, KromHC, go s = 1, 2. In the study of "
              "residual streams: of validation losses, by 95 % intervals over seeds.", Rule(at_most=0.03)),
        Claim("lm-hc", "fig. 9", "substantial",
              "HC's gradient norm is less steady than that of every constrained variant.",
              "HC's mean jitter over the largest of theirs; in the study, by 95 % intervals over seeds.",
              Rule(at_least=1.1)),
        Claim("lm-jitter", "app. G.2", "similar", "The constrained variants are about equally steady.",
              "Mean jitter: largest over smallest; in the study, by 95 % intervals over seeds.", Rule(at_most=1.25)),
        Claim("lm-d8", "app. G.2", "trains", "With d = 8 go s = 1 trains as KromHC does.",
              "Relative difference of their smoothed last losses; in the study, of validation losses, by the 95 % "
              "interval over seeds.", Rule(-0.03, 0.03)),
    )  # fmt: skip
    headlines = (
        Headline(
            rank=60,
            claim="lm-loss",
            number="{0:.1%}",
            holds="Language models with mHC-lite, KromHC and go-mHC end with about the same loss: {text}.",
            fails="Language models with mHC-lite, KromHC and go-mHC end with different losses: {text}.",
        ),
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        scales: dict[str, dict[str, Any]] = {
            "quick": {"recipe": "stories-tiny", "steps": 80, "num_channels": 32},
            "laptop": {"recipe": "stories-tiny"},
            "paper": {"recipe": "tinystories-30m"},
        }
        options = scales[scale]
        four = [LanguageModel(method=name, **options) for name in METHODS]
        return [*four, *(LanguageModel(method=name, num_streams=8, **options) for name in ("kromhc", "go-s1"))]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        """By the study where it has seeds for a claim, unless the records have the paper's sizes."""
        here = self._findings(records)
        if all(record.full_size for record in records):
            return here
        try:
            return {**here, **study_findings(stages(STREAMS))}
        except ModuleNotFoundError:  # scipy, without which there are no intervals; the command says that it is missing
            return here

    def _findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        four = {name: only(records, method=name, num_streams=4).metrics for name in METHODS}
        losses = {name: four[name]["last_loss"] for name in self.constrained}
        jitters = {name: four[name]["jitter"] for name in self.constrained}
        apart = max(losses.values()) / min(losses.values()) - 1
        hc = four["hc"]["jitter"] / max(jitters.values())
        spread = max(jitters.values()) / min(jitters.values())
        krom, go = (only(records, method=name, num_streams=8).metrics["last_loss"] for name in ("kromhc", "go-s1"))
        size = self._size(records[0])
        return {
            "lm-loss": Finding(
                apart, f"{min(losses.values()):.3f} to {max(losses.values()):.3f}: {apart:.1%} apart ({size})"
            ),
            "lm-hc": self._steadiness(records, hc, f"{hc:.2f} times the largest of theirs ({size})"),
            "lm-jitter": self._steadiness(
                records, spread, f"{min(jitters.values()):.3f} to {max(jitters.values()):.3f} ({size})"
            ),
            "lm-d8": Finding(go / krom - 1, f"go {go:.3f}, KromHC {krom:.3f} ({size})"),
        }

    @staticmethod
    def _steadiness(records: Sequence[Record], value: float, text: str) -> Finding:
        if LanguageModel(**records[0].configuration).training.steps < FEWEST_STEPS:
            return Finding(None, f"too few steps to tell: {text}")
        return Finding(value, text)

    @staticmethod
    def _size(record: Record) -> str:
        recipe = LanguageModel(**record.configuration).training
        return f"{recipe.num_layers} layers of {recipe.num_channels} channels, {recipe.steps:,} steps"

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """The study, then curves for four and for eight streams, and their ends."""
        rows = [
            (
                look(record.configuration["method"]).label,
                "" if record.configuration["method"] == "none" else record.configuration["num_streams"],
                f"{record.metrics['last_loss']:.4f}",
                f"{record.metrics['validation_loss']:.4f}",
                f"{record.metrics['jitter']:.3f}",
                f"{record.metrics['largest_norm']:.2f}",
            )
            for record in records
        ]
        return [
            *study_exhibits(stages(STREAMS)),
            Plot(
                draw=lambda: self._draw(select(records, num_streams=4)),
                caption="Loss and gradient norm (before clipping), d = 4.",
            ),
            Plot(draw=lambda: self._draw(select(records, num_streams=8)), caption="The same with d = 8."),
            Table(
                header=("method", "d", "last training loss", "validation loss", "mean jitter", "largest gradient norm"),
                rows=rows,
                caption="Loss in nats per token; the training loss is the mean over the last tenth of the steps. "
                "Jitter is the standard deviation over the mean of ten gradient norms in a row, after the warm-up "
                "(app. G.2).",
            ),
        ]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(8, 3.6)
        loss, norm = figure.subplots(1, 2)
        for record in records:
            style = line(record.configuration["method"])
            loss.plot(record.metrics["steps"], record.metrics["losses"], **style)
            norm.semilogy(record.metrics["steps"], record.metrics["gradient_norms"], **style)
        loss.set(xlabel="step", ylabel="training loss, nats per token")
        norm.set(xlabel="step", ylabel="gradient norm")
        figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure
