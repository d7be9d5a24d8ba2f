"""An experiment of your own: its runs, its claims, its findings and its figure.

    GOMHC_PLUGINS=examples/own_mixing.py:examples/own_experiment.py gomhc reproduce --only traces

It then appears on the page and in claims.json, next to the paper's experiments.
"""

from dataclasses import dataclass

from gomhc.birkhoff.registry import as_mixing
from gomhc.lab.exhibits.exhibit import Plot
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run
from gomhc.lab.results.claim import Claim, Finding, Rule


@dataclass(frozen=True, kw_only=True)
class TraceRun(Run):
    method: str

    def execute(self):
        mixing = as_mixing(self.method)
        return {"traces": [float(mixing(mixing.initial_logits()).trace()) for _ in range(3)]}


class Traces(Experiment):
    name = "traces"
    title = "Traces at the start"
    paper = "The paper does not say how large the trace of a mixing matrix is at the start."
    claims = (
        Claim(
            id="trace-large",
            where="beyond the paper",
            paper="none",
            statement="Traces are large.",
            measure="Smallest trace.",
            rule=Rule(at_least=3),
        ),
    )

    def runs(self, scale):
        return [TraceRun(method=method) for method in ("go", "lazy", "lazy-walk")]

    def findings(self, records):
        smallest = min(min(record.metrics["traces"]) for record in records)
        return {"trace-large": Finding(smallest, f"{smallest:.2f}")}

    def exhibits(self, records):
        return [Plot(draw=lambda: self._draw(records), caption="Traces of three draws.")]

    def _draw(self, records):
        figure = new_figure()
        axes = figure.subplots()
        for record in records:
            axes.plot(record.metrics["traces"], **line(record.configuration["method"]))
        axes.legend()
        return figure
