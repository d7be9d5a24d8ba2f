"""Training of language models: `train` and `resume` write a run, and `load_run` reads it."""

from __future__ import annotations

from gomhc.lab.training.loop import Execution, NotFinite, Watcher, resume, train
from gomhc.lab.training.recipe import Recipe
from gomhc.lab.training.trained_run import TrainedRun, load_run

__all__ = ["Execution", "NotFinite", "Recipe", "TrainedRun", "Watcher", "load_run", "resume", "train"]
