"""Claims about stories and their judges (table 3, app. G.3), which other judges, prompts and models cannot decide."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding
from gomhc.lab.results.record import Record

NO_RULE = "no rule: it takes the paper's judges, prompts and openings; `gomhc judge` makes the tables with others"


class StoryScores(Experiment):
    """What the paper's judges say; `gomhc judge` has its own store, so there are no runs."""

    name = "judge"
    title = "Stories and their judges"
    paper = "Table 3, app. G.3: three language models grade the grammar, creativity and consistency of stories."
    order = 900
    claims = (
        Claim("judge-parity", "table 3", "6.63, 5.88, 5.22", "Stories of go s = 2 score highest of five models.",
              NO_RULE, None),
        Claim("judge-icc", "table 3", "0.890, 0.671, 0.825", "Three gradings of a story agree.", NO_RULE, None),
        Claim("judge-mini", "app. G.3", "6.34, 5.90, 4.90",
              "The mini judge gives go s = 2 the most consistent stories.", NO_RULE, None),
        Claim("judge-nano", "app. G.3", "6.43, 6.25, 5.80", "The nano judge puts all models close together.",
              NO_RULE, None),
        Claim("judge-pairs", "app. G.3", "0.732 … 0.201", "Judges of different size rank stories alike.",
              NO_RULE, None),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        return ()

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        return {}
