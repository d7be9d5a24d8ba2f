"""Studies: comparisons whose results stand beside the package, in studies/NAME/STAGE/compare.json.

An installed package has none, and whoever asks for one gets nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gomhc.lab.comparison.result import FORMAT, Result
from gomhc.lab.files import Damaged, read
from gomhc.lab.results.code_version import PACKAGE

STUDIES = PACKAGE.parent / "studies"
"""Folder of all studies, in a checkout of the repository."""
STREAMS = "streams"
"""The study of residual streams in small language models, which decides claims where it has their methods."""
ANSWERS = ("stage-2", "stage-5")
"""The stages of this study that answer its question, with the same methods; the others explore."""
MORE_SEEDS = "stage-6"
"""The stage that compares go-mHC with the plain network of its size, in the setting of the last answer."""
BEST_RATE = "stage-8c"
"""The stage that compares it with the plain network at that network's own best learning rate, likewise."""


def files(name: str, studies: Path | None = None) -> list[Path]:
    """Return the files of the stages of a study that are done, in the order of their names."""
    return sorted(((studies or STUDIES) / name).glob("*/compare.json"))


def stages(name: str, studies: Path | None = None) -> dict[str, Result]:
    """Return the result of each stage of a study that is done."""
    return {path.parent.name: _load(path) for path in files(name, studies)}


def answers(stages: Mapping[str, Result]) -> list[Result]:
    """Return the stages of the study of streams that answer its question and are done."""
    return [stages[name] for name in ANSWERS if name in stages]


def _load(path: Path) -> Result:
    try:
        result = json.loads(read(path))
        if result["format"] != FORMAT:
            raise ValueError(f"expected the format {FORMAT!r}, got {result['format']!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} is not a result of gomhc compare: {error}") from None
    return result
