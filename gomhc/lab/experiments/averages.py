"""Do averages of orthostochastic matrices reach the whole region? (app. H.1)"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.spectra import ReachRun
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, select


class Averages(Experiment):
    """Spectral reach of averages of orthostochastic matrices."""

    name = "averages"
    title = "Averages of orthostochastic matrices"
    paper = (
        "App. H.1: a weighted average of few orthostochastic matrices fills the Karpelevič region almost immediately."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 8000, "num_steps": 40} if scale == "quick" else {}
        methods = ("average-2", "average-3", "mhc-lite")  # the last one covers everything: what the search can find
        return [ReachRun(method=method, num_streams=3, **sizes) for method in methods]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        shares = {record.configuration["method"]: record.metrics["share"] for record in select(records, num_streams=3)}
        if not {"average-2", "mhc-lite"} <= shares.keys():
            return {}
        text = ", ".join(f"{method} {share:.1%}" for method, share in shares.items())
        return {"averages-fill": Finding(shares["average-2"] / shares["mhc-lite"], text)}
