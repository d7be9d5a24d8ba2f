"""A committed study decides the claims on language models by intervals over its seeds, and the page shows it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from comparisons import comparison

from gomhc.lab.comparison import study
from gomhc.lab.comparison.comparison_exhibits import curves_plot, loss_table
from gomhc.lab.comparison.study import STREAMS, stages
from gomhc.lab.comparison.study_claims import study_findings
from gomhc.lab.comparison.study_exhibits import study_card, study_exhibits
from gomhc.lab.comparison.words import answer, findings, short_names
from gomhc.lab.exhibits.exhibit import Link, Plot, Table
from gomhc.lab.experiments.lm import METHODS, LanguageModel, TinyLanguageModel
from gomhc.lab.experiments.verdicts import judge
from gomhc.lab.report.comparison_page import comparison_page
from gomhc.lab.results.claim import Finding, Rule, Verdict
from gomhc.lab.results.record import Record

START = "start=equal-streams,learning_rate=6e-3"
NOISE = (0.001, -0.002, 0.0005, 0.0, 0.0015)
"""What each seed adds to a loss, as a share of it; methods share it."""
CLAIMS = {claim.id: claim for claim in TinyLanguageModel.claims}


def seeds(mean: float, own: Sequence[float] = (0.0004, -0.0003, 0.0, 0.0002, -0.0001)) -> list[float | None]:
    return [mean * (1 + shared + each) for shared, each in zip(NOISE, own, strict=True)]


def stage(jitters: dict[str, Any] | None = None, **losses: Any) -> dict[str, Any]:
    """A stage with all methods that the claims are about; equal losses unless told."""
    mixings = {
        "none": "none", "hc": "unconstrained", "lite": "permutations", "krom": "kronecker", "go1": "go:expressivity=1",
        "go": "go",
    }  # fmt: skip
    methods = {name: mixing if name == "none" else f"{mixing}@{START}" for name, mixing in mixings.items()}
    values = {methods[name]: losses.get(name, seeds(1.5, np.roll(NOISE, i) / 9)) for i, name in enumerate(methods)}
    steady = {methods[name]: values for name, values in (jitters or {}).items()}
    return comparison(values, steady)


def verdict_on(claim: str, result: dict[str, Any]) -> Verdict:
    return CLAIMS[claim].verdict(study_findings({"stage-3": result}).get(claim), full_size=True)


class TestClaims:
    @pytest.mark.parametrize(
        ("claim", "changes", "verdict"),
        [
            ("lm-loss", {}, Verdict.HOLDS_AT_REDUCED_SCALE),
            ("lm-loss", {"go": seeds(1.6)}, Verdict.DOES_NOT_HOLD),
            ("lm-loss", {"go": [1.5, 1.6, 1.4, 1.5, 1.7]}, Verdict.NOT_MEASURED),
            ("lm-hc", {"jitters": {"hc": seeds(0.3)}}, Verdict.HOLDS_AT_REDUCED_SCALE),
            ("lm-hc", {"jitters": {"hc": seeds(0.2)}}, Verdict.DOES_NOT_HOLD),
            ("lm-hc", {"jitters": {"hc": seeds(0.3), "krom": seeds(0.29)}}, Verdict.DOES_NOT_HOLD),
            ("lm-hc", {"jitters": {"hc": [0.1, 0.3, 0.2, 0.4, 0.2]}}, Verdict.NOT_MEASURED),
            ("lm-jitter", {}, Verdict.HOLDS_AT_REDUCED_SCALE),
            ("lm-jitter", {"jitters": {"lite": seeds(0.14)}}, Verdict.DOES_NOT_HOLD),
            ("lm-jitter", {"jitters": {"lite": [0.1, 0.3, 0.2, 0.4, 0.2]}}, Verdict.NOT_MEASURED),
        ],
    )
    def test_claim_is_decided_only_where_the_interval_is_on_one_side(
        self, claim: str, changes: dict[str, Any], verdict: Verdict
    ) -> None:
        assert verdict_on(claim, stage(**changes)) is verdict

    def test_interval_is_that_of_the_t_test_on_logarithms(self) -> None:
        go, krom = seeds(1.46, (0.0, 0.004, -0.003, 0.001, 0.002)), seeds(1.5)
        result = comparison(
            {"none": seeds(1.6), f"go:expressivity=1@{START},num_streams=8": go, "kronecker@num_streams=8": krom}
        )
        finding = study_findings({"stage-4": result})["lm-d8"]
        oracle = scipy.stats.ttest_rel(np.log(go), np.log(krom)).confidence_interval(0.95)  # type: ignore[arg-type]
        assert finding.interval == pytest.approx((math.exp(oracle.low) - 1, math.exp(oracle.high) - 1))
        assert finding.text.startswith("go −2.")
        assert "5 seeds" in finding.text
        assert "5,000 tokens of stories.txt" in finding.text

    def test_claim_on_eight_streams_holds_within_its_limits(self) -> None:
        names = (f"go:expressivity=1@{START},num_streams=8", "kronecker@num_streams=8")

        def verdict(loss: float) -> Verdict:
            return verdict_on("lm-d8", comparison({"none": seeds(9.0), names[0]: seeds(loss), names[1]: seeds(1.5)}))

        assert verdict(1.52) is Verdict.HOLDS_AT_REDUCED_SCALE
        assert verdict(1.4) is verdict(1.6) is Verdict.DOES_NOT_HOLD

    def test_study_without_every_method_or_with_several_of_one_mixing_decides_nothing(self) -> None:
        assert study_findings({}) == {}
        assert study_findings({"a": comparison({"none": seeds(2.0), "go": seeds(1.5)})}) == {}
        twice = stage()
        twice["methods"].append(twice["methods"][-1])
        assert study_findings({"a": twice}) == {}

    def test_seed_that_diverged_is_left_out_and_too_few_decide_nothing(self) -> None:
        losses = [None, *seeds(1.5)[1:]]
        assert "lm-loss" in study_findings({"a": stage(go=losses)})
        assert "lm-loss" not in study_findings({"a": stage(go=[*[None] * 4, 1.5])})

    def test_result_from_before_jitters_were_kept_decides_losses_alone(self) -> None:
        earlier = stage()
        for method in earlier["methods"]:
            del method["jitters"]
        assert study_findings({"a": earlier}).keys() == {"lm-loss"}

    def test_rule_is_decided_by_an_interval_on_one_side(self) -> None:
        rule = Rule(1, 2)
        assert all(rule.decides(interval) for interval in ((1.0, 2.0), (0.1, 0.9), (2.1, 3.0)))
        assert not any(rule.decides(interval) for interval in ((0.5, 1.5), (1.5, 2.5), (0.0, 3.0)))
        claim = CLAIMS["lm-hc"]
        assert claim.verdict(Finding(1.2, "", interval=(1.0, 1.4)), full_size=True) is Verdict.NOT_MEASURED


class TestCommittedFiles:
    @staticmethod
    def records() -> list[Record]:
        def record(run: LanguageModel) -> Record:
            metrics = {"last_loss": 1.0, "validation_loss": 1.0, "jitter": 0.2, "largest_norm": 1.0}
            curves = {"steps": [0, 1], "losses": [2.0, 1.0], "gradient_norms": [1.0, 1.0]}
            return Record(
                experiment="lm", run="LanguageModel", configuration=run.configuration, full_size=False, key="",
                code_version="", commit="", versions={}, device="", wall_time=0.0, metrics={**metrics, **curves},
            )  # fmt: skip

        return [record(run) for run in TinyLanguageModel().runs("quick") if isinstance(run, LanguageModel)]

    def use(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        monkeypatch.setattr(study, "STUDIES", folder)

    def verdicts(self) -> dict[str, Verdict]:
        experiment = TinyLanguageModel()
        assert len(self.records()) == len(METHODS) + 2
        return {item.claim.id: item.verdict for item in judge([experiment], {"lm": self.records()})}

    def test_verdicts_come_from_the_study_where_it_is_there_and_from_the_records_where_it_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.use(monkeypatch, tmp_path)
        assert self.verdicts() == {
            "lm-loss": Verdict.HOLDS_AT_REDUCED_SCALE,
            "lm-hc": Verdict.NOT_MEASURED,  # too few steps
            "lm-jitter": Verdict.NOT_MEASURED,
            "lm-d8": Verdict.HOLDS_AT_REDUCED_SCALE,
        }
        folder = tmp_path / STREAMS / "stage-3"
        folder.mkdir(parents=True)
        made = stage(go=seeds(1.7), jitters={"hc": seeds(0.4)})
        (folder / "compare.json").write_text(json.dumps(made), encoding="utf-8")
        assert self.verdicts() == {
            "lm-loss": Verdict.DOES_NOT_HOLD,
            "lm-hc": Verdict.HOLDS_AT_REDUCED_SCALE,
            "lm-jitter": Verdict.HOLDS_AT_REDUCED_SCALE,
            "lm-d8": Verdict.HOLDS_AT_REDUCED_SCALE,
        }
        shown = TinyLanguageModel().exhibits(self.records())
        assert "Study of residual streams, stage 3" in [table.title for table in shown if isinstance(table, Table)]

    def test_without_a_folder_of_studies_there_is_none(self, tmp_path: Path) -> None:
        assert stages(STREAMS, tmp_path) == {}

    def test_file_that_is_no_comparison_is_told(self, tmp_path: Path) -> None:
        (tmp_path / STREAMS / "stage").mkdir(parents=True)
        (tmp_path / STREAMS / "stage" / "compare.json").write_text('{"format": "other"}')
        with pytest.raises(ValueError, match="is not a result of gomhc compare: expected the format"):
            stages(STREAMS, tmp_path)

    def test_committed_stages_are_shown(self) -> None:
        for committed in stages(STREAMS).values():
            assert len(study_exhibits({"stage": committed})) == 3
            assert answer(committed)
            assert findings(committed)


class TestCard:
    LINK = Link("Language models", "lm")

    @pytest.mark.parametrize(
        ("loss", "tone", "words"),
        [(1.4, "good", "below"), (1.6, "bad", "above"), (1.5, "none", "not shown to differ from")],
    )
    def test_it_tells_go_against_the_plain_network(self, loss: float, tone: str, words: str) -> None:
        card = study_card({"stage-2": comparison({"none": seeds(1.5, NOISE), "go": seeds(loss)})}, self.LINK)
        assert card is not None
        assert card.badge.tone == tone
        assert words in card.text
        assert "the plain network" in card.text
        assert isinstance(card.plot, Plot)

    def test_it_is_of_the_stages_that_answer_whatever_their_seeds(self) -> None:
        few = comparison({"none": [2.0, 2.01, 2.0], "go": [1.9, 1.91, 1.9]})
        many = comparison({"none": seeds(1.5), "go": seeds(1.3)})
        other = comparison({"none": seeds(1.5), "go": seeds(1.0)})
        card = study_card({"stage-1": other, "stage-2": few, "stage-4": other, "stage-5": many}, self.LINK)
        assert card is not None
        assert card.number == "−0.2000"
        assert "go is below the plain network (−0.1000 ±" in card.text
        assert "go is below the plain network (−0.2000 ±" in card.text
        assert "0.5000" not in card.text
        assert "equal training time" not in card.text  # for which nothing was run

    def test_it_tells_the_wide_control_and_equal_seconds(self) -> None:
        result = comparison({"none": seeds(1.5), "none:as-wide=go": seeds(1.4), "go": seeds(1.45)})
        result["equal_seconds"] = "complete runs"
        card = study_card({"stage-5": result}, self.LINK)
        assert card is not None
        assert "go is above the plain network as large as go (+0.0500 ±" in card.text
        assert "At equal training time, go is below the plain network (−0.0500 ±" in card.text

    def test_more_seeds_against_the_wide_control_count(self) -> None:
        result = comparison({"none": seeds(1.5), "none:as-wide=go": seeds(1.4), "go": seeds(1.45)})
        more = comparison({"none:as-wide=go": [*seeds(1.5), 1.5], "go": [*seeds(1.44), 1.44]})
        card = study_card({"stage-5": result, "stage-6": more}, self.LINK)
        assert card is not None
        assert "go is below the plain network as large as go (−0.0600 ±" in card.text

    def test_answer_that_cannot_be_compared_does_not_hide_another(self) -> None:
        first = comparison({"none": [1.5, 1.6, 1.5], "go": [None, None, 1.49]})
        last = comparison({"none": seeds(1.5), "go": seeds(1.3)})
        card = study_card({"stage-2": first, "stage-5": last}, self.LINK)
        assert card is not None
        assert "go is not comparable with the plain network; in" in card.text

    def test_there_is_none_without_the_two_methods(self) -> None:
        assert study_card({}, self.LINK) is None
        assert study_card({"stage-2": comparison({"none": seeds(2.0), "identity": seeds(1.5)})}, self.LINK) is None


def test_page_is_written_where_every_run_diverged() -> None:
    result = comparison({"none": [None, None], "go": [None, None]})
    page = comparison_page(result | {"methods": [one | {"largest_norm": None} for one in result["methods"]]}).html()
    assert "Every method diverged with at least one seed" in page


class TestWords:
    def test_answer_names_the_lowest_loss_and_its_difference_from_the_reference(self) -> None:
        said = answer(comparison({"none": seeds(1.5), "go": seeds(1.488, NOISE)}))
        assert said[1:] == ["At equal training time (learning curves cut short), go is below the plain network."]
        assert said[0].startswith(
            "go has the lowest validation loss after 5,000 tokens, 1.4886 nats per token; it is 0.0"
        )
        assert "below the plain network (95 % interval −0.0" in said[0]
        assert said[0].endswith("lower in 5 of 5 seeds).")

    def test_answer_stays_short_whatever_the_number_of_methods(self) -> None:
        said = answer(
            comparison(
                {
                    "none": seeds(1.5),
                    "go": seeds(1.4),
                    "identity": seeds(1.45),
                    "rows": seeds(1.6),
                    "circulant": seeds(1.5, NOISE),
                    "kronecker": [None] * 5,
                }
            )
        )
        assert said[1] == (
            "Of the others, identity is below the plain network; rows is above the plain network; circulant is not "
            "shown to differ; kronecker is not comparable."
        )
        assert len(said) == 3
        assert said[2].startswith("At equal training time (learning curves cut short), go and identity are below ")

    def test_answer_says_so_if_the_reference_is_best_or_nothing_ended(self) -> None:
        said = answer(comparison({"none": seeds(1.5), "go": seeds(1.6)}))
        assert said[0].startswith("The plain network has the lowest validation loss")
        assert said[1].startswith("go is 0.1")
        assert answer(comparison({"none": [None, None], "go": [None, None]}))[0].startswith("Every method diverged")

    def test_method_that_diverged_with_its_worst_seed_is_not_called_the_best(self) -> None:
        result = comparison({"none": [1.0, 2.0, 1.5], "go": [0.99, None, 1.49]})
        assert answer(result)[0].startswith(
            "Of the methods that finished with all seeds, the plain network has the lowest validation loss"
        )
        cells = [row[1] for row in loss_table(result).rows]
        assert [str(getattr(cell, "text", cell)) for cell in cells] == [
            "1.5000 ± 0.0010",
            "1.2400 ± 0.0010 (2 of 3 seeds)",
        ]
        difference = curves_plot(result).draw().axes[1]
        assert len(difference.lines) == 1  # the line at zero

    def test_names_are_mixings_with_the_options_that_tell_them_apart(self) -> None:
        names = short_names(
            comparison(
                {
                    "none@learning_rate=0.1": seeds(1.0),
                    f"go@{START}": seeds(1.0),
                    f"go@{START},num_streams=8": seeds(1.0),
                    f"kronecker@{START}": seeds(1.0),
                    f"orthogonal@{START},num_streams=8": seeds(1.0),
                }
            )
        )
        assert list(names.values()) == ["none", "go", "go, num_streams=8", "kronecker", "orthogonal, num_streams=8"]
