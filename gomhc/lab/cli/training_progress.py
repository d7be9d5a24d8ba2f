"""Progress of a training run: a bar with loss, speed and time left, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

import rich.progress
from rich.console import Console
from rich.markup import escape

from gomhc.lab.cli.terminal import duration, is_line_due, say_at_once
from gomhc.lab.training import Recipe, Watcher
from gomhc.lab.training.history import Metrics
from gomhc.models import GPT


class TrainingProgress(Watcher):
    """Shows the progress of a run on standard error."""

    def __init__(self) -> None:
        self.run: Path | None = None
        self.console = Console(stderr=True)
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.fields[speed]}"),
            rich.progress.TimeRemainingColumn(),
        )
        self.bar = rich.progress.Progress(*columns, console=self.console, disable=not self.console.is_terminal)

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def opened(self, run: Path) -> None:
        self.run = run

    def started(self, recipe: Recipe, model: GPT, step: int) -> None:
        self.recipe, self.first, self.begin = recipe, step, time.perf_counter()
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        steps = f"{recipe.steps} steps of {recipe.tokens_per_step:,} tokens"
        self.say(f"{num_parameters:,} parameters, {steps}, mixing {recipe.mixing}")
        if step:
            self.say(f"resumed at step {step}")
        self.task = self.bar.add_task("training", total=recipe.steps, completed=step, speed="")
        self.bar.start()

    def stepped(self, record: Metrics) -> None:
        done, total = record["step"] + 1, self.recipe.steps
        elapsed = time.perf_counter() - self.begin
        speed = f"{(done - self.first) * self.recipe.tokens_per_step / elapsed:,.0f} tokens/s"
        self.bar.update(self.task, completed=done, description=f"loss {record['loss']:.3f}", speed=speed)
        if not self.console.is_terminal and is_line_due(done, total):
            left = elapsed / (done - self.first) * (total - done)
            self.say(f"[{done}/{total}] loss {record['loss']:.3f}, {speed}, {duration(left)} left")

    def evaluated(self, record: Metrics) -> None:
        distances = record["mix_distance"].values()
        mean = f", mean distance of mixes from the identity {sum(distances) / len(distances):.3f}" if distances else ""
        self.say(f"step {record['step']}: validation loss {record['validation_loss']:.3f}{mean}")
        if record["sample"]:
            self.say(textwrap.indent(record["sample"], "    "))

    def stopping(self) -> None:
        say_at_once("stopping after this step; press Ctrl-C again to stop without saving")

    def say(self, line: str) -> None:
        """Print a line on standard error, above the bar if there is one."""
        if self.console.is_terminal:
            self.bar.console.print(escape(line), highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)
