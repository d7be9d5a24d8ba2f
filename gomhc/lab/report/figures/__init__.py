"""How do results look in a figure? One file an experiment, named after it: records in, exhibits out.

Add one: a function `exhibits(records) -> list[Exhibit]` in `gomhc/lab/report/figures/<name>.py`, and a line here.
Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gomhc.lab.report.figures import (
    averages,
    counts,
    depth,
    dims,
    distance,
    exactness,
    fig6,
    fig7,
    fig8,
    gain,
    gradients,
    karpelevic,
    kl,
    kromhc,
    learning_rate,
    lm,
    map_times,
    parameters,
    projector_noise,
    read_term,
    rotations,
    sinkhorn,
    sparsity,
    spectra,
    targets,
    three_cycle,
    training_time,
    unitary,
    vanishing,
)
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record

EXHIBITS: dict[str, Callable[[Sequence[Record]], list[Exhibit]]] = {
    "exactness": exactness.exhibits,
    "gain": gain.exhibits,
    "depth": depth.exhibits,
    "gradients": gradients.exhibits,
    "counts": counts.exhibits,
    "map-times": map_times.exhibits,
    "parameters": parameters.exhibits,
    "lm": lm.exhibits,
    "karpelevic": karpelevic.exhibits,
    "spectra": spectra.exhibits,
    "averages": averages.exhibits,
    "three-cycle": three_cycle.exhibits,
    "kl": kl.exhibits,
    "kromhc": kromhc.exhibits,
    "fig6": fig6.exhibits,
    "fig7": fig7.exhibits,
    "fig8": fig8.exhibits,
    "dims": dims.exhibits,
    "sparsity": sparsity.exhibits,
    "targets": targets.exhibits,
    "distance": distance.exhibits,
    "projector-noise": projector_noise.exhibits,
    "sinkhorn": sinkhorn.exhibits,
    "vanishing": vanishing.exhibits,
    "read-term": read_term.exhibits,
    "unitary": unitary.exhibits,
    "learning-rate": learning_rate.exhibits,
    "training-time": training_time.exhibits,
    "rotations": rotations.exhibits,
}
"""Name of an experiment -> what is shown of its records."""
