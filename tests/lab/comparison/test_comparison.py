"""Methods of a comparison share weights and batches, and their differences are what statistics says."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from small_runs import small_recipe
from torch import Tensor

from gomhc.lab.comparison import costs as step_costs
from gomhc.lab.comparison.costs import StepCost, StepSetting, time_at_once
from gomhc.lab.comparison.costs import seconds as step_seconds
from gomhc.lab.comparison.methods import recipes_of, with_wide_controls
from gomhc.lab.comparison.plan import Tuning, at_equal_seconds, comparison_tasks
from gomhc.lab.comparison.result import TrainingText, result
from gomhc.lab.comparison.runs import EXPERIMENT, FORMAT, Records, StopAtFile, Task, distinct, train_one
from gomhc.lab.comparison.words import findings, signed, signs
from gomhc.lab.files import read_sealed, seal
from gomhc.lab.results.record import Record, Store, key_of
from gomhc.lab.training import Execution, Recipe, Watcher, checkpoint, train
from gomhc.lab.training.loop import Trainer
from gomhc.lab.workers import in_processes
from gomhc.models import GPT

CPU = Execution(device="cpu")
pytestmark = pytest.mark.usefixtures("token_cache")
METHODS = (
    "none",
    "identity",
    "go@start=equal-streams",
    "go@start=mean-stream,num_streams=3",
    "sinkhorn@readout=learned",
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return small_recipe(tmp_path / "corpus.txt", num_layers=2, steps=4)


def record_of(task: Task, losses: list[float], **metrics: Any) -> Record:
    """A record as a run would leave it, with these validation losses."""
    curve = {"validation_steps": list(range(len(losses))), "validation_losses": losses, "steps": [0], "losses": [3.0]}
    numbers = {"gradient_norms": [1.0], "last_loss": 3.0, "jitter": 0.1, "largest_norm": 2.0, "streams": {}}
    return Record(
        experiment=EXPERIMENT, run="Training", configuration=task.configuration, full_size=False, key=task.key,
        code_version=FORMAT, commit="c", versions={"gomhc": "1", "sources": "s"}, device="d", wall_time=1.0,
        metrics={**curve, **numbers, **metrics},
    )  # fmt: skip


class Seen(Watcher):
    """Keeps the first weights."""

    def started(self, recipe: Recipe, model: GPT, step: int) -> None:
        self.weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}


class TestSharing:
    def test_methods_of_a_seed_start_from_the_same_weights_and_see_the_same_batches(
        self, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches: dict[str, list[Tensor]] = {}
        weights = {}
        original = Trainer.batches
        for number, (method, own) in enumerate(recipes_of(METHODS, recipe).items()):

            def batches_of(trainer: Trainer, method: str = method) -> Any:
                drawn = original(trainer)
                batches.setdefault(method, []).extend(tokens for tokens, _ in drawn)
                return drawn

            monkeypatch.setattr(Trainer, "batches", batches_of)
            seen = Seen()
            train(replace(own, seed=7), tmp_path / str(number), CPU, seen)
            weights[method] = seen.weights
        plain = weights["none"]
        for method in METHODS[1:]:
            assert set(plain) < set(weights[method])
            assert all(torch.equal(weights[method][name], plain[name]) for name in plain), method
            assert all(map(torch.equal, batches[method], batches["none"])), method
        assert len(batches["none"]) == recipe.steps

    def test_another_seed_gives_other_weights_and_batches(
        self, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = Seen(), Seen()
        batches: list[Tensor] = []
        original = Trainer.batches

        def batches_of(trainer: Trainer) -> Any:
            drawn = original(trainer)
            batches.extend(tokens for tokens, _ in drawn)
            return drawn

        monkeypatch.setattr(Trainer, "batches", batches_of)
        train(recipe, tmp_path / "0", CPU, first)
        train(replace(recipe, seed=1), tmp_path / "1", CPU, second)
        assert not torch.equal(first.weights["tokens.weight"], second.weights["tokens.weight"])
        assert len(batches) == 2 * recipe.steps
        assert not any(map(torch.equal, batches[: recipe.steps], batches[recipe.steps :]))


class TestMethods:
    @pytest.mark.parametrize("mixing", ["go", "identity", "go:expressivity=3", "permutations"])
    @pytest.mark.parametrize("num_channels", [8, 96])
    def test_wide_control_has_as_many_parameters_to_half_a_row_a_layer(self, mixing: str, num_channels: int) -> None:
        base = Recipe(num_channels=num_channels)
        recipes = recipes_of(("none", "none:as-wide", mixing), base)
        wide, streams = (recipes[name].gpt_config(61) for name in ("none:as-wide", mixing))
        assert wide.parametrization is None
        assert abs(wide.num_parameters - streams.num_parameters) <= base.num_layers * (2 * num_channels + 1) / 2
        assert wide.num_parameters == sum(weight.numel() for weight in GPT(wide).parameters())

    @pytest.mark.parametrize(
        "options",
        ["num_streams=8", "dynamic=False", "readout=learned,num_streams=2", "num_layers=2", "num_channels=64"],
    )
    @pytest.mark.parametrize("control", ["none:as-wide", "none:as-wide=go", "none:as-wide=go@learning_rate=0.1"])
    def test_wide_control_is_as_large_as_the_method_beside_it_with_its_options(
        self, control: str, options: str
    ) -> None:
        recipes = recipes_of(("none", control, f"go@{options}"), Recipe())
        assert recipes[control].gpt_config(61).num_parameters == pytest.approx(
            recipes[f"go@{options}"].gpt_config(61).num_parameters, rel=2e-3
        )
        assert recipes[control].gpt_config(61).num_parameters != pytest.approx(
            Recipe().gpt_config(61).num_parameters, rel=2e-3
        )

    def test_wide_control_takes_a_number_of_streams_that_its_mixing_needs(self) -> None:
        streams = "kronecker:factors=(2,4)@num_streams=8"
        recipes = recipes_of(("none", "none:as-wide", streams), Recipe())
        assert list(recipes) == ["none", "none:as-wide", streams]
        assert recipes["none:as-wide"].num_streams == 8

    def test_own_options_of_a_wide_control_stand(self) -> None:
        recipes = recipes_of(("none:as-wide=go@num_streams=2", "go", "go@num_streams=2"), Recipe())
        assert recipes["none:as-wide=go@num_streams=2"].num_streams == 2

    def test_options_behind_an_at_sign_are_of_that_method_alone(self) -> None:
        recipes = recipes_of(("none", "go:expressivity=1@learning_rate=3e-3,dynamic=False", "go"), Recipe())
        own = recipes["go:expressivity=1@learning_rate=3e-3,dynamic=False"]
        assert (own.mixing, own.learning_rate, own.dynamic) == ("go:expressivity=1", 3e-3, False)
        assert recipes["go"] == Recipe(mixing="go")

    @pytest.mark.parametrize(
        ("methods", "message"),
        [
            (("go",), "at least two methods"),
            ((), "got no method"),
            (("none", "go", "go"), "got go twice"),
            (("none", "magic"), "method magic: the mixing must be one of go"),
            (("none", "go@seed=3"), "all methods share seed.*use --seed"),
            (("none", "go@start"), "must look like start=mean-stream"),
            (("none", "go@mixing=sinkhorn"), "stands before the @"),
            (("none", "go@keep=1"), "keep does not apply to a comparison"),
            (("none", "go@start=mean-stream,start=equal-streams"), "must be given once, got start twice"),
            (("none", "go@colour=red"), "options of a method are num_streams.*got 'colour'"),
            (("none", "none:as-wide"), "needs a method with streams beside it"),
            (("none", "none:as-wide=magic"), "the mixing must be one of go"),
        ],
    )
    def test_mistakes_are_told(self, methods: tuple[str, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            recipes_of(methods, Recipe())


class TestRecords:
    def test_record_is_found_whatever_the_corpus_is_called_and_whatever_code_made_it(self, tmp_path: Path) -> None:
        task = Task("go", Recipe(corpus="here.txt", keep=5), "data")
        Store(tmp_path).save(record_of(task, [2.0]))
        found = Records(tmp_path)
        assert found.find(Task("other name", Recipe(corpus="there.txt", save_every=7), "data")) is not None
        plain = Task("none", Recipe(mixing="none"), "data")
        made_with = {**plain.configuration, "num_streams": 2}  # as records were kept at first
        key = key_of(EXPERIMENT, "Training", made_with, FORMAT)
        found.add(replace(record_of(plain, [3.0]), configuration=made_with, key=key))
        assert found.find(plain) is not None
        for other in (Recipe(seed=1), Recipe(mixing="identity"), Recipe(readout="sum")):
            assert found.find(Task("go", other, "data")) is None
        assert found.find(Task("go", Recipe(), "other data")) is None

    def test_record_from_before_a_field_existed_is_found(self, tmp_path: Path) -> None:
        task = Task("go", Recipe(), "data")
        earlier = {name: value for name, value in task.configuration.items() if name not in ("readout", "dynamic")}
        key = key_of(EXPERIMENT, "Training", earlier, FORMAT)
        Store(tmp_path).save(replace(record_of(task, [2.0]), configuration=earlier, key=key))
        assert Records(tmp_path).find(task) is not None
        assert Records(tmp_path).find(Task("go", Recipe(readout="learned"), "data")) is None

    def test_damaged_record_is_told_and_not_used(self, tmp_path: Path) -> None:
        task = Task("go", Recipe(), "data")
        path = Store(tmp_path).save(record_of(task, [2.0]))
        path.write_text(path.read_text().replace("2.0", "1.0"))
        found = Records(tmp_path)
        assert found.find(task) is None
        assert str(path) in found.damaged[0]

    def test_run_that_diverges_leaves_a_record_that_says_so(
        self, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Trainer, "gradient_norm", lambda trainer: math.nan)
        outcome = train_one(
            Task("go", recipe, "data"), Store(tmp_path / "records"), tmp_path / "runs", CPU, tmp_path / ".stop", ""
        )
        assert outcome.record is not None
        assert "gradient's norm nan" in outcome.record.metrics["diverged"]
        assert str(tmp_path) not in outcome.record.metrics["diverged"]

    def test_run_continues_where_the_corpus_is_now(
        self, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def outcome(recipe: Recipe) -> Any:
            task = Task("go", recipe, "data")
            return train_one(task, Store(tmp_path / "records"), tmp_path / "runs", CPU, tmp_path / ".stop", "")

        with monkeypatch.context() as patch:
            patch.setattr(StopAtFile, "wants_stop", lambda _: True)
            assert outcome(recipe).record is None
        moved = Path(recipe.corpus).rename(tmp_path / "moved.txt")
        continued = outcome(replace(recipe, corpus=str(moved)))
        assert continued.record is not None, continued.failure

    def test_run_without_a_record_is_told_rather_than_left_out(self, tmp_path: Path) -> None:
        tasks = comparison_tasks(recipes_of(("none", "go"), Recipe()), range(2), "data")
        records = Records(tmp_path)
        for task in tasks[:-1]:
            records.add(record_of(task, [2.0]))
        assert len(records.of(tasks[:-1])) == 3
        with pytest.raises(LookupError, match="runs without a record: go, seed 1"):
            records.of(tasks)

    def test_file_stops_a_run_which_continues_to_the_same_record(
        self, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task, stop = Task("go", recipe, "data"), tmp_path / ".stop"

        def outcome(folder: str) -> Any:
            return train_one(task, Store(tmp_path / folder / "records"), tmp_path / folder, CPU, stop, "")

        with monkeypatch.context() as patch:
            patch.setattr(StopAtFile, "wants_stop", lambda _: True)  # as if the file appeared during the first step
            assert outcome("b").record is None
        assert checkpoint.steps(tmp_path / "b" / task.folder_name) == [1]
        stop.touch()
        assert outcome("b").record is None
        stop.unlink()
        whole, continued = outcome("a"), outcome("b")
        assert whole.record.metrics == continued.record.metrics
        assert whole.record.metrics["validation_steps"] == [0, 3, 4]


def test_run_that_is_stopped_at_its_last_step_is_evaluated(recipe: Recipe, tmp_path: Path) -> None:
    class StopAtTheEnd(Watcher):
        evaluated_steps: list[int] = []  # noqa: RUF012  of one run

        def stepped(self, record: Mapping[str, Any]) -> None:
            self.step = record["step"] + 1

        def wants_stop(self) -> bool:
            return self.step == recipe.steps

        def evaluated(self, record: Mapping[str, Any]) -> None:
            self.evaluated_steps.append(record["step"])

    watcher = StopAtTheEnd()
    assert train(recipe, tmp_path / "run", CPU, watcher) == recipe.steps
    assert watcher.evaluated_steps[-1] == recipe.steps


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worker_leaves_signals_to_the_process_that_started_it(number: signal.Signals) -> None:
    assert list(in_processes(signal.getsignal, [(number,)] * 2, 2, in_order=True)) == [signal.SIG_IGN] * 2


class TestResult:
    SEEDS = range(5)
    CORPUS = TrainingText(name="text", fingerprint="f", tokens="data")

    def summarized(self, tmp_path: Path, curves: dict[str, Any], costs: dict[str, float]) -> dict[str, Any]:
        recipes = recipes_of(tuple(curves), Recipe(steps=2, evaluate_every=1))
        records = Records(tmp_path)
        for task in comparison_tasks(recipes, self.SEEDS, "data"):
            curve = curves[task.method][task.recipe.seed]
            records.add(record_of(task, curve) if isinstance(curve, list) else record_of(task, [], diverged=curve))
        steps = {method: StepCost(cost, 0.0, 1.0, 100) for method, cost in costs.items()}
        compared = result(recipes, self.SEEDS, self.CORPUS, records, steps, {method: [] for method in recipes}, None)
        return json.loads(json.dumps(compared, allow_nan=False))

    def curves(self) -> dict[str, Any]:
        noise = np.random.default_rng(0).normal(0, 0.01, (2, 5, 3)) + np.array([3.0, 2.5, 2.0])
        return {"none": noise[0].tolist(), "go": (noise[1] - 0.05).tolist()}

    def test_differences_are_paired_by_seed_with_the_interval_of_the_t_test(self, tmp_path: Path) -> None:
        curves = self.curves()
        compared = self.summarized(tmp_path, curves, {"none": 1.0, "go": 1.0})
        (difference,) = compared["differences"]
        last = {method: [curve[-1] for curve in group] for method, group in curves.items()}
        assert (difference["method"], difference["reference"]) == ("go", "none")
        assert difference["seeds"] == pytest.approx(np.subtract(last["go"], last["none"]).tolist())
        oracle = scipy.stats.ttest_rel(last["go"], last["none"]).confidence_interval(0.95)
        assert (difference["low"], difference["high"]) == pytest.approx((oracle.low, oracle.high))
        assert difference["low"] < difference["bootstrap"][0] < difference["mean"] < difference["bootstrap"][1]

    def test_a_run_that_two_methods_share_counts_once_in_core_hours(self, tmp_path: Path) -> None:
        curves = {"none": self.curves()["none"], "none@num_streams=3": self.curves()["none"]}
        assert self.summarized(tmp_path, curves, dict.fromkeys(curves, 1.0))["core_hours"] == pytest.approx(
            len(self.SEEDS) * record_of(Task("none", Recipe(), "data"), []).wall_time / 3600
        )

    def test_at_equal_cost_equal_seconds_are_equal_tokens(self, tmp_path: Path) -> None:
        compared = self.summarized(tmp_path, self.curves(), {"none": 1.0, "go": 1.0})
        assert compared["differences_at_equal_seconds"] == compared["differences"]

    def test_slower_method_is_compared_at_the_steps_that_it_reached(self, tmp_path: Path) -> None:
        curves = self.curves()
        compared = self.summarized(tmp_path, curves, {"none": 1.0, "go": 4.0})
        (difference,) = compared["differences_at_equal_seconds"]
        reached = [(curve[0] + curve[1]) / 2 for curve in curves["go"]]  # half a step of two
        assert difference["seeds"] == pytest.approx([a - b[-1] for a, b in zip(reached, curves["none"], strict=True)])

    def test_seed_that_diverged_has_no_difference_and_is_told(self, tmp_path: Path) -> None:
        curves = self.curves()
        curves["go"][2] = "at step 1 the loss is nan"
        compared = self.summarized(tmp_path, curves, {"none": 1.0, "go": 1.0})
        assert compared["differences"][0]["seeds"][2] is None
        assert "go diverged with 1 of 5 seeds: at step 1 the loss is nan." in findings(compared)

    @pytest.mark.parametrize(
        ("shift", "word"), [(-0.5, "below the plain network"), (0.5, "above the plain network"), (0.0, "no difference")]
    )
    def test_words_follow_the_interval(self, tmp_path: Path, shift: float, word: str) -> None:
        curves = self.curves()
        noise = np.random.default_rng(1).normal(0, 0.01, 5)
        curves["go"] = [
            [*curve[:-1], curve[-1] + shift + change] for curve, change in zip(curves["none"], noise, strict=True)
        ]
        compared = self.summarized(tmp_path, curves, {"none": 1.0, "go": 1.0})
        assert word in findings(compared)[0]


@pytest.mark.parametrize(
    ("value", "text"), [(-0.0042, "−0.0042"), (3e-5, "+3e−05"), (-3e-5, "−3e−05"), (0.0, "+0.0000")]
)
def test_signs_are_minus_signs(value: float, text: str) -> None:
    assert signed(value) == text


def test_equal_losses_have_no_sign() -> None:
    assert signs({"seeds": [0.0, 1e-9, -1e-9, None]}) == "0+−·"


class TestPlan:
    def test_tuning_uses_seeds_that_the_comparison_does_not(self) -> None:
        recipes = recipes_of(("none", "go"), Recipe())
        tuning = Tuning.parse("learning_rate=1e-3,2e-3", Recipe(), 2, 50)
        tasks = tuning.tasks(recipes, "data")
        assert len(tasks) == 2 * 2 * 2
        compared = {task.recipe.seed for task in comparison_tasks(recipes, range(1000), "data")}
        assert not compared & {task.recipe.seed for task in tasks}
        assert {task.recipe.steps for task in tasks} == {50}

    def test_value_with_the_lowest_mean_loss_wins_and_divergence_loses(self, tmp_path: Path) -> None:
        tuning = Tuning.parse("learning_rate=1e-3,2e-3,4e-3", Recipe(), 2, None)
        records = Records(tmp_path)
        losses = {1e-3: (2.0, 1.0), 2e-3: (1.5, 1.4), 4e-3: (1.0, None)}
        for task in tuning.tasks({"go": Recipe()}, "data"):
            loss = losses[task.recipe.learning_rate][task.recipe.seed - tuning.seeds[0]]
            records.add(record_of(task, [3.0, loss]) if loss else record_of(task, [], diverged="nan"))
        found = tuning.tried("go", Recipe(), "data", records)
        assert found.losses == {1e-3: 1.5, 2e-3: 1.45, 4e-3: math.inf}
        assert found.best == 2e-3
        assert len(found.records) == 6

    def test_options_of_streams_are_not_tuned_for_plain_networks(self) -> None:
        recipes = recipes_of(("none", "none:as-wide", "go"), Recipe())
        tuning = Tuning.parse("coefficient_learning_rate=None,1e-3", Recipe(), 1, None)
        tasks = tuning.tasks(recipes, "data")
        assert [(task.method, task.recipe.coefficient_learning_rate) for task in tasks] == [("go", None), ("go", 1e-3)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("learning_rate", "be an option and two values"),
            ("learning_rate=1e-3", "be an option and two values"),
            ("learning_rate=1e-3,0.001", "try different values, got 0.001 twice"),
            ("learning_rate=[],[]", "try different values"),
            ("seed=1,2", "vary one of"),
        ],
    )
    def test_mistakes_in_tune_are_told(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"tune must {message}"):
            Tuning.parse(text, Recipe(), 1, None)

    def test_values_of_tune_are_checked_for_every_method(self) -> None:
        recipes = recipes_of(("none", "permutations", "go"), Recipe())
        tuning = Tuning.parse("num_streams=2,20", Recipe(), 1, None)
        for method in ("none", "go"):
            tuning.require(method, recipes[method])
        with pytest.raises(ValueError, match="--tune num_streams=20, method permutations: num_streams=20 has 20!"):
            tuning.require("permutations", recipes["permutations"])

    def test_runs_at_once_take_the_time_of_the_fullest_place(self) -> None:
        assert time_at_once([3.0, 3.0, 3.0], 2) == 6.0
        assert time_at_once([5.0, 1.0, 1.0, 1.0], 2) == 5.0
        assert time_at_once([2.0], 64) == 2.0

    def test_evaluation_takes_no_more_time_than_the_held_out_text(self) -> None:
        recipe, cost = Recipe(steps=100, evaluate_every=10, evaluation_windows=1_000_000), StepCost(1.0, 0, 0, 1)
        assert step_seconds(recipe, cost, 0) == pytest.approx(0.1)
        assert step_seconds(recipe, cost, recipe.tokens_per_step) == pytest.approx(1e-3 * (100 + 11 / 3))

    def test_equal_seconds_give_a_slower_method_fewer_steps(self) -> None:
        recipes = recipes_of(("none", "go"), Recipe(steps=100))
        timed = at_equal_seconds(recipes, {"none": StepCost(2.0, 0, 0, 1), "go": StepCost(3.0, 0, 0, 1)})
        assert {method: recipe.steps for method, recipe in timed.items()} == {"none": 100, "go": 67}

    def test_plain_networks_that_differ_in_coefficients_alone_are_one_run(self) -> None:
        for mixing in ("none", "none:as-wide=go"):
            keys = {
                Task(
                    "", Recipe(mixing=mixing, start=start, coefficient_learning_rate=rate, total_leak=leak), "data"
                ).key
                for start, rate, leak in (("mean-stream", None, None), ("equal-streams", 1e-3, 0.1))
            }
            assert len(keys) == 1
        assert Task("", Recipe(start="equal-streams"), "data").key != Task("", Recipe(start="mean-stream"), "data").key

    def test_number_of_streams_means_something_to_the_wide_control_and_nothing_to_the_plain_network(self) -> None:
        def tasks(mixing: str) -> list[Task]:
            return [Task("", Recipe(mixing=mixing, num_streams=number), "data") for number in (2, 4)]

        assert len(distinct(tasks("none"))) == 1
        assert distinct(tasks("none"))[0].recipe.num_streams == 2
        assert len(distinct(tasks("none:as-wide=go"))) == len(distinct(tasks("go"))) == 2

    def test_size_is_tuned_for_methods_with_streams_and_the_wide_control_follows(self) -> None:
        recipes = recipes_of(("none", "none:as-wide=go", "go"), Recipe())
        tuning = Tuning.parse("num_streams=2,8", Recipe(), 1, None)
        assert {task.method for task in tuning.tasks(recipes, "data")} == {"go"}
        recipes["go"] = tuning.applied(recipes["go"], 8)
        assert with_wide_controls(recipes)["none:as-wide=go"].num_streams == 8

    def test_what_tuning_chose_for_a_wide_control_stays(self) -> None:
        control = "none:as-wide=go@learning_rate=0.1"
        recipes = recipes_of(("none", control, "go"), Recipe())
        recipes[control] = replace(recipes[control], learning_rate=0.2)
        assert with_wide_controls(recipes)[control].learning_rate == 0.2

    @pytest.mark.parametrize("compiled", [False, True])
    def test_models_are_timed_as_they_are_trained(self, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
        made: list[Any] = []

        def compile_model(model: Any) -> Any:
            made.append(model)
            return model

        monkeypatch.setattr(torch, "compile", compile_model)
        small = Recipe(num_layers=1, num_heads=1, num_channels=8, context_length=8, batch_size=1)
        recipes = recipes_of(("none", "go", "go@start=mean-stream", "identity"), small)
        costs = step_costs.measure(recipes, StepSetting(11, "cpu", compile=compiled), lambda turns, total: turns)
        assert set(costs) == set(recipes)
        assert len(made) == (3 if compiled else 0)  # both starts of go are one model

    def test_costs_are_kept_for_the_same_models_and_no_others(self, tmp_path: Path) -> None:
        recipes = recipes_of(("none", "go"), Recipe())
        costs = {method: StepCost(2.0, 0.1, 3.0, 1) for method in recipes}
        setting = StepSetting(61, "cpu", compile=False)
        step_costs.save(tmp_path / "costs.json", costs, recipes, setting)
        again = recipes_of(("none", "go"), Recipe(learning_rate=0.5, steps=3, seed=4, start="near-identity"))
        assert step_costs.load(tmp_path / "costs.json", again, setting) == costs
        assert step_costs.load(tmp_path / "costs.json", recipes_of(("none", "identity"), Recipe()), setting) is None
        for other in (replace(setting, vocab_size=62), replace(setting, device="cuda"), replace(setting, compile=True)):
            assert step_costs.load(tmp_path / "costs.json", recipes, other) is None
        earlier = read_sealed(tmp_path / "costs.json")
        for entry in earlier["costs"]:
            del entry["model"]["device"], entry["model"]["compile"]
        (tmp_path / "costs.json").write_text(seal(earlier))
        assert step_costs.load(tmp_path / "costs.json", recipes, setting) == costs
        (tmp_path / "costs.json").write_text(seal({"a": 1}))
        assert step_costs.load(tmp_path / "costs.json", recipes, setting) is None


def test_recipe_without_the_new_fields_is_restored_as_it_was() -> None:
    new = ("total_leak", "initial_scale", "dynamic", "readout", "coefficient_learning_rate")
    earlier = {name: value for name, value in asdict(Recipe()).items() if name not in new}
    restored = Recipe.from_dict(earlier)
    assert (restored.readout, restored.dynamic, restored.total_leak, restored.initial_scale) == (
        "mean",
        True,
        None,
        0.01,
    )
    assert restored.coefficient_learning_rate is None
