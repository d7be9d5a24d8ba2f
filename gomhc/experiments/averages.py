"""Do averages of orthostochastic matrices reach the whole region? (app. H.1)"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.experiments.spectra import ReachRun
from gomhc.results.claim import Finding
from gomhc.results.record import Record, select


class Averages(Experiment):
    """Spectral reach of averages of orthostochastic matrices."""

    name = "averages"
    title = "Averages of orthostochastic matrices"
    paper = (
        "App. H.1: a weighted average of few orthostochastic matrices fills the Karpelevič region almost immediately."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 8000, "num_steps": 40} if scale == "quick" else {}
        return [ReachRun(method=f"average-{k}", num_streams=3, **sizes) for k in (2, 3)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        shares = {record.configuration["method"]: record.metrics["share"] for record in select(records, num_streams=3)}
        if "average-2" not in shares:
            return {}
        text = ", ".join(f"{method} {share:.1%}" for method, share in shares.items())
        return {"averages-fill": Finding(shares["average-2"], text)}
