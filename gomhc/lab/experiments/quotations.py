"""Numbers that the paper quotes from other work, at sizes that no experiment here has."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding
from gomhc.lab.results.record import Record

NOT_HERE = "quoted from other work, at sizes that no experiment here has"


class Quotations(Experiment):
    """They are listed, and nothing is measured."""

    name = "quotations"
    title = "Quoted from other work"
    paper = "Sec. 4.3 quotes the overheads of HC and mHC in models of 7 and 27 billion parameters."
    order = 910
    claims = (
        Claim("hc-overhead", "sec. 4.3", "0.15 %", "HC adds 0.15 % to the FLOPs of a 7B model.", NOT_HERE, None),
        Claim("mhc-overhead", "sec. 4.3", "8 %", "mHC adds 8 % to the time of a 27B model.", NOT_HERE, None),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        return ()

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        return {}
