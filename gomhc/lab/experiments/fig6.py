"""Does go-mHC learn to mix four streams in fewer epochs, and to a lower loss? (fig. 6, app. F.3, and without epochs)"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.projector_noise import FloorRun
from gomhc.lab.experiments.toy import ToyRun, metric, quick_epochs, ratio
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, select

PAPER = ("go-s1", "go-s2", "go-s3", "mhc-lite", "kromhc")
BEYOND = ("transportation", "identity")


class Fig6(Experiment):
    """Training curves of four streams."""

    name = "fig6"
    title = "Training curves of a 4-stream mixing task"
    paper = (
        "Fig. 6: with η = 1e-3, 64 targets, 100 samples and ε = 0.1, go-mHC (s ≥ 2) reaches the noise floor ε²/3 at "
        "about 500 epochs, mHC-lite the same loss at about 10,000, KromHC ends highest and go-mHC with s = 1 in "
        "between."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        sizes: Sizes = {"num_targets": 16} if quick else {}
        as_coded = PAPER if not quick else ("go-s2", "mhc-lite", "kromhc")
        epochs = {method: quick_epochs(method) if quick else 20_000 for method in (*PAPER, *BEYOND)}
        return [
            FloorRun(num_streams=4, projector_noise=0.0),
            *(ToyRun(method=method, num_epochs=epochs[method], **sizes) for method in (*PAPER, *BEYOND)),
            *(ToyRun(method=method, inputs="count", num_epochs=epochs[method], **sizes) for method in as_coded),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        floors = select(records, "FloorRun")
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        found: dict[str, Finding] = {}
        for record in floors:
            value = record.metrics["loss"] / FLOOR
            found["noise-floor"] = Finding(value, f"{record.metrics['loss']:.4g} on 200,000 fresh samples")
        for claim, method in (("fig6-floor-go", "go-s2"), ("fig6-floor-lite", "mhc-lite")):
            final, lowest = metric(records, "final", method=method), metric(records, "lowest", method=method)
            if final and lowest:
                text = f"{final:.4g}: {final / FLOOR:.3f} of ε²/3, {final / lowest:.4f} of the least on these samples"
                found[claim] = Finding(final / FLOOR, text)
        finals = {method: metric(records, "final", method=method) for method in PAPER}
        if all(finals.values()):
            highest = max(finals, key=lambda method: finals[method] or 0)
            value = (finals["kromhc"] or 0) / FLOOR
            text = f"{value:.2f} times the floor; highest is {highest}"
            found["fig6-kromhc"] = Finding(value if highest == "kromhc" else 0, text)
            low, middle, high = (finals[method] or 0 for method in ("mhc-lite", "go-s1", "kromhc"))
            text = f"mHC-lite {low:.4g}, go s = 1 {middle:.4g}, KromHC {high:.4g}"
            found["fig6-s1"] = Finding(float(low < middle < high), text)
        for claim, method in (("fig6-500", "go-s2"), ("fig6-10000", "mhc-lite")):
            epochs, also = metric(records, "converged", method=method), metric(coded, "converged", method=method)
            if epochs is not None:
                found[claim] = Finding(epochs, f"{epochs:,} epochs" + _as_coded(also))
        for claim, name in (("fig6-tenfold", "converged"), ("fig6-start", "descended")):
            value, also = (ratio(kind, name, "mhc-lite", "go-s2") for kind in (records, coded))
            if value is not None:
                found[claim] = Finding(value, f"{value:.1f} times" + _as_coded(also))
        return found


FLOOR = 0.1**2 / 3


def _as_coded(value: float | None) -> str:
    """What comes out with the inputs of the published code."""
    return "" if value is None else f"; with inputs times d, as in the published code, {value:,.4g}"
