"""`gomhc train`: train a language model."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gomhc.lab import training as trainer
from gomhc.lab.cli.training_progress import TrainingProgress
from gomhc.lab.recipes import DEFAULT, RECIPES
from gomhc.lab.training import Execution, NotFinite, Recipe, checkpoint


@dataclass(frozen=True, kw_only=True)
class Train:
    """A training run: its recipe, its folder, and how it is computed."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the run; by default a new folder in runs/."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Continue the run in this folder from its newest checkpoint, bit for bit."""
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)


TRAININGS = {name: Train(recipe=recipe()) for name, recipe in RECIPES.items()}
if TYPE_CHECKING:
    AnyTraining = Train
else:
    AnyTraining = tyro.extras.subcommand_type_from_defaults(
        TRAININGS, {name: recipe.__doc__ for name, recipe in RECIPES.items()}, prefix_names=False
    )


def train(training: Annotated[AnyTraining, tyro.conf.arg(name="")]) -> None:
    """Train a language model with a recipe; `gomhc train` alone takes stories-tiny.

    `gomhc train RECIPE --help` lists all options, as in gomhc train stories-tiny --help.

    The folder of a run holds its checkpoints, its metrics (metrics.jsonl) and curves for TensorBoard. Ctrl-C saves a
    checkpoint and stops. To train with several processes, use torchrun --nproc-per-node 2 -m gomhc train ...
    """
    with TrainingProgress() as progress:
        try:
            done = _train(training, progress)
        except NotFinite as error:
            raise ValueError(str(error)) from error  # a wrong recipe: one line, as for other mistakes
        except KeyboardInterrupt:
            sys.exit(_interrupted(progress.run))
    if int(os.environ.get("RANK", 0)) != 0:
        return
    if done < progress.recipe.steps:
        where = f"step {done:,} of {progress.recipe.steps:,}"
        stopped = f"stopped at {where}; to continue: gomhc train --resume {progress.run}"
        if "RANK" not in os.environ:
            sys.exit(stopped)
        print(stopped)  # with an error here, torchrun would report that a process failed
        return
    print(f"wrote {progress.run} ({done} steps)")
    print(f"gomhc sample {progress.run}")


def _interrupted(run: Path | None) -> str:
    """What to say after a second Ctrl-C, which saves nothing."""
    steps = [] if run is None else checkpoint.steps(run)
    if not steps:
        return "interrupted; no checkpoint was saved"
    return f"interrupted; to continue from step {steps[-1]:,}: gomhc train --resume {run}"


def _train(training: Train, progress: TrainingProgress) -> int:
    if training.resume is None:
        return trainer.train(training.recipe, training.out, training.execution, progress)
    if training.recipe not in [known.recipe for known in TRAININGS.values()] or training.out is not None:
        raise ValueError(
            "--resume can be combined only with --device, --compile and --parallel, because the run keeps its recipe "
            "and its folder; drop the other options"
        )
    return trainer.resume(training.resume, training.execution, progress)


def with_recipe(arguments: Sequence[str]) -> list[str]:
    """Insert the default recipe: `train --steps 5` means `train stories-tiny --steps 5`."""
    if arguments[:1] == ["train"] and (len(arguments) == 1 or _is_option(arguments[1])):
        return ["train", DEFAULT, *arguments[1:]]
    return [*arguments]


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument not in ("-h", "--help")
