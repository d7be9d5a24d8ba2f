"""The spectral reach of averages of orthostochastic matrices (app. H.1)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.exhibits.spectrum_plots import reach_exhibits
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.spectra import ReachRun
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select


class Averages(Experiment):
    """Spectral reach of averages of orthostochastic matrices."""

    name = "averages"
    title = "Averages of orthostochastic matrices"
    paper = (
        "App. H.1: a weighted average of few orthostochastic matrices fills the Karpelevič region almost immediately."
    )
    order = 250
    claims = (
        Claim("averages-fill", "app. H.1", "almost immediately",
              "An average of two orthostochastic matrices fills the region, d = 3.",
              "Covered share of the region over that of mHC-lite, which covers all, by the same search.",
              Rule(at_least=0.95)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 8000, "num_steps": 40} if scale == "quick" else {}
        # The last method covers the whole region, so its share is what the search can find.
        methods = ("average:num_terms=2", "average:num_terms=3", "mhc-lite")
        return [ReachRun(method=method, num_streams=3, **sizes) for method in methods]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        shares = {record.configuration["method"]: record.metrics["share"] for record in select(records, num_streams=3)}
        if not {"average:num_terms=2", "mhc-lite"} <= shares.keys():
            return {}
        text = ", ".join(f"{method} {share:.1%}" for method, share in shares.items())
        return {"averages-fill": Finding(shares["average:num_terms=2"] / shares["mhc-lite"], text)}

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """The same figures as for the methods themselves."""
        return reach_exhibits(records)
