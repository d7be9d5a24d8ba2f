"""The experiments on expressivity and convergence: tiny runs give finite records, findings and figures."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch

from gomhc.birkhoff import Average, Kronecker
from gomhc.birkhoff.karpelevic import polygon_excess
from gomhc.birkhoff.registry import PARAMETRIZATIONS, as_mixing, named_settings
from gomhc.birkhoff.rotations import ROTATIONS
from gomhc.lab.exhibits.exhibit import Plot
from gomhc.lab.exhibits.style import RC
from gomhc.lab.experiments import learning_rate
from gomhc.lab.experiments.catalogue import all_experiments
from gomhc.lab.experiments.experiment import Experiment, Run
from gomhc.lab.experiments.fig2 import pair_excess
from gomhc.lab.experiments.kromhc import average_of, distance_outside, product_of
from gomhc.lab.experiments.spectra import outside_hypocycloid
from gomhc.lab.experiments.three_cycle import NUM_CELLS, covered_share, grid_counts, project
from gomhc.lab.experiments.toy import ToyRun, describe, first_below, log_spaced, published_start
from gomhc.lab.results.record import Record

NAMES = (
    "karpelevic", "spectra", "averages", "three-cycle", "kl", "kromhc", "fig6", "fig7", "fig8", "dims", "sparsity",
    "targets", "distance", "projector-noise", "sinkhorn", "vanishing", "read-term", "unitary", "learning-rate",
    "training-time", "rotations", "rivals",
)  # fmt: skip
TINY: dict[str, Any] = {"num_targets": 3, "num_epochs": None, "num_samples": 20, "num_steps": 2}
"""What replaces the sizes of a run, where it has such fields."""


def named(name: str) -> Experiment:
    return next(experiment for experiment in all_experiments() if experiment.name == name)


def tiny(run: Run, epochs: int = 12) -> Run:
    sizes = {field.name: TINY[field.name] for field in dataclasses.fields(run) if field.name in TINY}
    if "num_epochs" in sizes:
        sizes["num_epochs"] = min(epochs, run.num_epochs)  # type: ignore[attr-defined]
    if "num_samples" in sizes and not isinstance(run, ToyRun):
        sizes["num_samples"] = {"SliceRun": 100_000, "FloorRun": 10_000}.get(type(run).__name__, 4)
    return dataclasses.replace(run, **sizes)


def record_of(name: str, run: Run) -> Record:
    metrics = json.loads(json.dumps(run.execute()))
    return Record(
        experiment=name, run=type(run).__name__, configuration=run.configuration, full_size=False, key="",
        code_version="", commit="", versions={}, device="", wall_time=0.0, metrics=metrics,
    )  # fmt: skip


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(finite(item) for item in value.values())
    if isinstance(value, list):
        return all(finite(item) for item in value)
    return value is None or isinstance(value, str | bool) or math.isfinite(value)


@pytest.mark.parametrize("name", NAMES)
def test_tiny_runs_give_finite_records_findings_with_claims_and_figures(name: str) -> None:
    experiment = named(name)
    epochs = 150 if name == "learning-rate" else 12  # there the least loss has to be reached
    records = [record_of(name, tiny(run, epochs)) for run in experiment.runs("quick")]
    assert all(finite(record.metrics) for record in records)
    found = experiment.findings(records)
    assert found
    assert found.keys() <= {claim.id for claim in experiment.claims}
    assert all(finding.text for finding in found.values())
    with matplotlib.rc_context(RC):
        for exhibit in experiment.exhibits(records):
            if isinstance(exhibit, Plot):
                exhibit.draw().canvas.draw()  # type: ignore[no-untyped-call]
            else:
                assert all(len(row) == len(exhibit.header) for row in exhibit.rows)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NAMES)
def test_findings_and_figures_stand_records_that_are_not_there_yet(name: str) -> None:
    experiment = named(name)
    assert experiment.findings([]) == {}
    first = min(experiment.runs("quick"), key=lambda run: run.cost)
    records = [record_of(name, tiny(first))]
    experiment.findings(records)
    with matplotlib.rc_context(RC):
        for exhibit in experiment.exhibits(records):
            if isinstance(exhibit, Plot):
                exhibit.draw()


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_of_an_experiment_is_one_that_it_can_find(name: str) -> None:
    """At full scale, whose runs are listed and not run."""
    experiment = named(name)
    runs = experiment.runs("laptop")
    assert len(set(runs)) == len(runs)
    assert all(run.cost >= 0 for run in runs)
    assert experiment.claims


MIXINGS = [*PARAMETRIZATIONS, *named_settings(), *(f"go:rotation={name}" for name in ROTATIONS)]


@pytest.mark.parametrize("method", [name for name in MIXINGS if as_mixing(name).num_logits > 0])
def test_every_mixing_of_the_registry_learns_the_toy_task(method: str) -> None:
    metrics = ToyRun(method=method, num_targets=3, num_epochs=40, learning_rate=0.02).execute()
    assert metrics["final"] < metrics["first"]


@pytest.mark.parametrize(("factor", "num_streams"), [(2, 8), (3, 9), (4, 16), (5, 25)])
def test_products_of_factors_of_one_size_are_named_after_them(factor: int, num_streams: int) -> None:
    mixing = as_mixing(product_of(factor, num_streams), num_streams)
    assert isinstance(mixing, Kronecker)
    assert {part.num_streams for part in mixing.parts} == {factor}


def test_averages_are_named_after_their_number_of_terms() -> None:
    assert as_mixing(average_of(3)) == Average(num_streams=4, num_terms=3, term=Kronecker(num_streams=4))


def test_starts_of_toy_runs_are_those_of_the_published_code() -> None:
    starts = {name: published_start(as_mixing(name)) for name in ("go-square-s2", "go-s2", "mhc", "mhc-linear")}
    assert starts == {"go-square-s2": "uniform", "go-s2": "difference", "mhc": "normal", "mhc-linear": "uniform"}


def test_same_seed_gives_bitwise_the_same_record_and_another_seed_does_not() -> None:
    def losses(seed: int) -> list[float]:
        return ToyRun(method="go-square-s2", num_targets=3, num_epochs=20, seed=seed).execute()["loss"]

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)


def test_who_never_reaches_the_least_loss_is_compared_by_the_epochs_it_had() -> None:
    both = learning_rate.compare({"go-square-s2": (20, 0.1), "mhc-lite": (30, 0.3)}, 5000)
    assert both.value == 1.5
    assert both.text == "1.5 times; epochs at the best rate: go-square-s2 20 (η = 0.1), mhc-lite 30 (η = 0.3)"
    lite = learning_rate.compare({"go-square-s2": (20, 0.1), "mhc-lite": None}, 5000)
    assert lite.value == 250
    assert lite.text.startswith("more than 250.0 times; ")
    assert lite.text.endswith("mhc-lite not in 5,000 at any rate")
    go = learning_rate.compare({"go-square-s2": None, "mhc-lite": (30, 0.3)}, 5000)
    assert go.value == 30 / 5000
    assert go.text.startswith("less than 0.0 times; ")


def test_converged_epoch_of_a_known_curve() -> None:
    """1 + e^{-t / 100} is within 5 % of one from t = 100 ln 20 on."""
    curve = 1 + np.exp(-np.arange(5000) / 100)
    found = describe(np.stack((curve, curve), axis=1))
    assert found["converged"] == math.ceil(100 * math.log(20))
    assert found["first"] == 2
    assert found["descended"] == math.ceil(100 * math.log(1 / 0.9))
    assert found["epochs"][0] == 0
    assert found["epochs"][-1] == 4999


def test_kept_epochs_are_even_on_a_logarithmic_axis() -> None:
    kept = log_spaced(10_001)
    assert kept[0] == 0
    assert kept[-1] == 10_000
    gaps = np.diff(np.log(kept[kept > 100] + 1))
    assert gaps.max() / gaps.min() < 1.3
    assert first_below(np.array([3.0, 2.0, 1.0]), 0.5) is None


def test_a_product_of_3_by_3_permutations_has_an_eigenvalue_outside_of_their_region() -> None:
    """The counterexample to the proposition of app. B.3: -e^{2 pi i / 3} is no eigenvalue of a 3 × 3 matrix of B_3."""
    point = -np.exp(2j * np.pi / 3)
    assert distance_outside(np.array([point]), 3)[0] == pytest.approx(0.5, abs=1e-3)
    assert distance_outside(np.array([0.3 + 0.1j]), 3) == [0.0]


def test_mixtures_of_two_permutations_keep_to_the_polygons_up_to_four_streams_and_not_with_five() -> None:
    assert pair_excess(3) < 1e-9
    assert pair_excess(4) < 1e-9
    assert pair_excess(5) > 1e-3


def test_polygons_contain_their_corners_and_sides() -> None:
    assert polygon_excess([1j, -1, 0.5 + 0.5j, 0.3], 4).max() < 1e-12
    assert polygon_excess([1j], 3)[0] > 0.1


def test_hypocycloid_separates_inside_from_outside() -> None:
    turn = np.linspace(0.1, 6.2, 50)
    curve = (2 * np.exp(1j * turn) + np.exp(-2j * turn)) / 3
    assert outside_hypocycloid(0.99 * curve) == 0
    assert outside_hypocycloid(curve + 0.05 * curve / np.abs(curve)) == 1


def test_corners_of_the_triangle_are_the_cyclic_permutations() -> None:
    identity = torch.eye(3)
    corners = project(torch.stack((identity, identity.roll(1, dims=1), torch.full((3, 3), 1 / 3))))
    torch.testing.assert_close(corners[0], torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(corners[1].norm(), torch.tensor(1.0))
    torch.testing.assert_close(corners[2], torch.zeros(2), atol=1e-6, rtol=0)
    assert grid_counts(corners).sum() == 3
    assert covered_share(np.ones((NUM_CELLS, NUM_CELLS))) == 1
