"""Tables in README and on the site are what their scripts write from committed files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import scipy.stats
from site_modules import script, site_module

from gomhc.lab.comparison.result import CUT_SHORT, FORMAT
from gomhc.lab.comparison.study import ANSWERS
from gomhc.lab.experiments.catalogue import all_experiments

ROOT = Path(__file__).parent.parent
places = site_module("places")
write_results = script("studies/write_results.py")
WRITERS = {
    "benchmark": script("benchmarks/write_tables.py").table,
    "mixings": site_module("mixing_table").table,
    "study": write_results.written,
}
EXPECTED = {
    ("README.md", "mixings"): {"table"},
    ("README.md", "benchmark"): {"overview"},
    ("README.md", "study"): {"streams-in-short", "smollm2-in-short", "paper", "findings"},
    ("performance.md", "benchmark"): {path.stem for path in (ROOT / "benchmarks").glob("*.json")} | {"layer_sizes"},
    ("comparing.md", "study"): {"streams", "streams-stages"},
    ("hugging-face.md", "study"): {"smollm2"},
    ("reproducing.md", "study"): {"paper", "findings"},
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("page", places.PAGES, ids=lambda page: page.name)
def test_places_hold_what_their_script_writes(page: Path, kind: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert places.filled(text, kind, WRITERS[kind]) == text, "out of date; write it with: make tables"
    assert text.count(f"<!-- {kind}: ") == len(places.names(text, kind)) == text.count(f"<!-- end of {kind} -->")


@pytest.mark.parametrize(("name", "kind"), EXPECTED)
def test_the_places_are_there(name: str, kind: str) -> None:
    (page,) = (page for page in places.PAGES if page.name == name)
    assert set(places.names(page.read_text(encoding="utf-8"), kind)) >= EXPECTED[name, kind]


def test_a_place_is_filled_and_the_rest_is_left_alone() -> None:
    text = "a\n<!-- study: x -->\nold\n<!-- end of study -->\nb <!-- benchmark: x -->\n<!-- end of benchmark -->\n"
    filled = places.filled(text, "study", lambda name: f"new {name}")
    assert filled == text.replace("old", "new x")


def difference(method: str, mean: float) -> dict:
    return {
        "method": method,
        "reference": "none@learning_rate=0.006",
        "mean": mean,
        "low": mean - 0.001,
        "high": mean + 0.001,
        "seeds": [mean, mean / 2, None],
    }


def compared(tmp_path: Path, stage: str, *methods: str, equal_seconds: str = CUT_SHORT) -> Path:
    """A folder of studies with a result in which the methods differ by 0.01 from the first."""
    folder = tmp_path / "streams" / stage
    folder.mkdir(parents=True)
    result = {
        "format": FORMAT,
        "reference": methods[0],
        "seeds": [0, 1, 2],
        "corpus": {"name": "stories.txt"},
        "steps": 2_000,
        "tokens": 4_096_000,
        "equal_seconds": equal_seconds,
        "methods": [
            {
                "method": method,
                "recipe": {"learning_rate": 0.003},
                "loss": 1.5,
                "diverged": [],
                "time": 1 + index / 4,
                "steps_at_equal_seconds": round(2_000 / (1 + index / 4)),
                "num_parameters": 7e5,
            }
            for index, method in enumerate(methods)
        ],
        "differences": [difference(method, -0.01) for method in methods[1:]],
        "differences_at_equal_seconds": [difference(method, 0.002) for method in methods[1:]],
    }
    (folder / "compare.json").write_text(json.dumps(result))
    return tmp_path


def said(studies: Path) -> str:
    """The answer, with ordinary spaces."""
    return write_results.streams(studies).replace("\N{NO-BREAK SPACE}", " ")


def test_the_answer_shows_differences_seeds_and_times(tmp_path: Path) -> None:
    methods = ("none@learning_rate=0.006", "go@start=equal-streams")
    studies = compared(tmp_path, "stage-2", *methods, equal_seconds="complete runs")
    lines = write_results.streams(studies).splitlines()
    assert lines[0] == (
        "In 2,000 steps of 2,048 tokens, `go` is better than the plain network (`none`); at equal seconds, `go` is "
        "worse."
    )
    assert lines[2] == "| method | equal tokens | equal seconds | step time |"
    assert lines[4] == "| `none` | 1.5000 | 1.5000 | 1.00× |"
    expected = "| `go` | −0.0100 ± 0.0010 (2 of 2) | +0.0020 ± 0.0010 (0 of 2) | 1.25× |"
    assert lines[5].replace("\N{NO-BREAK SPACE}", " ") == expected
    assert (
        "−0.0100 ± 0.0010 (2 of 2)".replace(" ", "\N{NO-BREAK SPACE}").replace("0\N{NO-BREAK SPACE}(", "0 (")
        in lines[5]
    )
    assert "4.1 M tokens of stories.txt" in lines[-1]


def test_each_answer_has_a_table_with_its_steps_above(tmp_path: Path) -> None:
    for stage in ANSWERS:
        studies = compared(tmp_path, stage, "none", "go")
    lines = said(studies).splitlines()
    sentence = "In 2,000 steps of 2,048 tokens, `go` is better than the plain network"
    assert lines[0] == f"{sentence} (`none`). {sentence}."
    assert lines.count("**2,000 steps of 2,048 tokens**") == len(ANSWERS)
    assert lines.count("| `go` | −0.0100 ± 0.0010 (2 of 2) | 1.25× |") == len(ANSWERS)


def test_a_stage_shows_losses_differences_seeds_and_times(tmp_path: Path) -> None:
    studies = compared(tmp_path, "stage-3", "none", "go", equal_seconds="complete runs")
    lines = write_results.streams_stages(studies).splitlines()
    assert lines[0] == "**Other mixings** (`stage-3`)"
    assert lines[5] == "| `go` | 1.5000 | −0.0100 ± 0.0010 | 2 of 2 seeds | 1.25× | +0.0020 ± 0.0010 |"
    assert lines[-1].endswith("Equal seconds: complete runs.")
    assert "Learning rate 0.003." in lines[-1]


def test_curves_that_are_cut_short_do_not_stand_for_equal_seconds(tmp_path: Path) -> None:
    studies = compared(tmp_path, "stage-2", "none", "go")
    assert "| `go` | 1.5000 | −0.0100 ± 0.0010 | 2 of 2 seeds | 1.25× |\n" in write_results.streams_stages(studies)
    assert "seconds" not in write_results.streams_stages(studies) + write_results.streams(studies)


def test_go_is_compared_with_every_control(tmp_path: Path) -> None:
    studies = compared(tmp_path, "stage-2", "none", "identity", "go", equal_seconds="complete runs")
    file = studies / "streams" / "stage-2" / "compare.json"
    result = json.loads(file.read_text())
    for which, sign in (("differences", 1), ("differences_at_equal_seconds", -1)):
        for one, seeds in zip(result[which], ([0.1, 0.2, 0.3], [0.11, 0.22, 0.33]), strict=True):
            one["seeds"] = [sign * each for each in seeds]
    file.write_text(json.dumps(result))
    oracle = scipy.stats.ttest_1samp([0.01, 0.02, 0.03], 0).confidence_interval(0.95)
    half = f"{(oracle.high - oracle.low) / 2:.4f}"
    expected = f"| `go` minus `identity` | +0.0200 ± {half} (0 of 3) | −0.0200 ± {half} (3 of 3) |  |"
    assert expected in said(studies).splitlines()


def test_in_short_only_the_last_answer_is_shown(tmp_path: Path) -> None:
    for stage in ANSWERS:
        studies = compared(tmp_path, stage, "none", "identity", "go")
    lines = write_results.streams_in_short(studies).replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert lines.count("| method | equal tokens | step time |") == 1
    assert "| `go` minus `identity` | +0.0000 ± 0.0000 (0 of 2) |  |" in lines


def test_rivals_are_compared_with_go(tmp_path: Path) -> None:
    compared(tmp_path, "stage-5", "none", "go")
    studies = compared(tmp_path, "stage-3", "none", "go", "sinkhorn", "orthogonal", "kronecker")
    file = studies / "streams" / "stage-3" / "compare.json"
    result = json.loads(file.read_text())
    each = ([0.1, 0.1, 0.1], [0.1, 0.2, 0.0], [0.3, 0.31, 0.32], [0.1, 0.3, -0.1])
    for one, seeds in zip(result["differences"], each, strict=True):
        one["seeds"] = seeds
    file.write_text(json.dumps(result))
    assert write_results.streams(studies).endswith(
        "Other mixings, 3 seeds: `orthogonal` is worse than `go`, and `sinkhorn` and `kronecker` are not shown to "
        "differ."
    )


def test_more_seeds_against_a_control_take_the_place_of_fewer(tmp_path: Path) -> None:
    compared(tmp_path, "stage-5", "none", "none:as-wide=go", "go")
    studies = compared(tmp_path, "stage-6", "none:as-wide=go", "go@start=equal-streams")
    expected = "| `go` minus `none:as-wide=go` | −0.0100 ± 0.0010 (2 of 2) |  |"
    assert expected in said(studies).splitlines()


def test_go_is_compared_with_the_plain_network_at_its_best_rate(tmp_path: Path) -> None:
    compared(tmp_path, "stage-5", "none", "go")
    studies = compared(tmp_path, "stage-8c", "none@learning_rate=6e-3", "none@learning_rate=3e-3", "go")
    file = studies / "streams" / "stage-8c" / "compare.json"
    result = json.loads(file.read_text())
    result["methods"][0]["recipe"] = {"learning_rate": 0.006}
    file.write_text(json.dumps(result))
    lines = said(studies).splitlines()
    assert "| `go` minus `none, learning_rate=6e-3` | −0.0100 ± 0.0010 (2 of 2) |  |" in lines
    assert "The learning rate is 0.003; the last row has `none` at its best, 0.006." in write_results.streams_in_short(
        studies
    )


def test_break_even_is_told_where_runs_took_equal_seconds(tmp_path: Path) -> None:
    studies = compared(tmp_path, "stage-2", "none", "go", equal_seconds="complete runs")
    file = studies / "streams" / "stage-2" / "compare.json"
    result = json.loads(file.read_text())
    result["differences"][0]["seeds"] = [-0.01, -0.01]
    result["differences_at_equal_seconds"][0]["seeds"] = [0.01, 0.01]  # half of what a step time of 1.25 costs
    file.write_text(json.dumps(result))
    told = f"At equal seconds, `go` breaks even with a step time of {1.25**0.5:.2f}×"
    assert told in write_results.streams(studies)


def test_methods_that_differ_in_options_keep_them(tmp_path: Path) -> None:
    studies = compared(tmp_path, "stage-1", "none", "go@start=equal-streams", "go@start=mean-stream")
    text = write_results.streams_stages(studies)
    assert "`go, start=equal-streams`" in text
    assert "`none`" in text
    assert text.startswith("**Learning rate and start** (`stage-1`)")
    so_far = write_results.streams(studies)
    assert so_far.startswith(f"{write_results.IN_PROGRESS.format('streams')} So far, with 3 seeds: ")
    assert "1.5000 nats per token" in so_far


def test_a_study_without_results_is_in_progress(tmp_path: Path) -> None:
    for name in ("streams", "streams_stages", "smollm2"):
        text = getattr(write_results, name)(tmp_path)
        assert "in progress" in text
        assert "\n" not in text


def test_fine_tuning_shows_differences_with_intervals(tmp_path: Path) -> None:
    (tmp_path / "smollm2").mkdir()
    record = {
        "before": 2.688,
        "settings": {"steps": 60, "tokens_per_step": 128, "held_out_tokens": 4096},
        "summary": {
            "plain": {"runs": 3, "held_out_loss": 2.2},
            "streams": {"runs": 3, "held_out_loss": 2.19, "difference": -0.01, "half_width_95": 0.004},
            "streams, faster coefficients": {"runs": 0, "held_out_loss": None},
        },
        "runs": [
            {"arm": "plain", "seed": 0},
            {"arm": "streams", "seed": 0, "inspection": {"streams/similarity": 0.5}},
            {"arm": "streams", "seed": 1, "inspection": {"streams/similarity": 0.7}},
        ],
    }
    (tmp_path / "smollm2" / "record.json").write_text(json.dumps(record))
    lines = write_results.smollm2(tmp_path).splitlines()
    assert lines[2] == "| plain | 2.2000 |  | 3 |  |"
    assert lines[3] == "| streams | 2.1900 | −0.0100 ± 0.0040 | 3 | 0.6000 |"
    assert "7,680 tokens" in lines[-1]


def test_words_of_a_finding_follow_its_verdict(tmp_path: Path) -> None:
    claims = json.loads((ROOT / "studies" / "paper" / "claims.json").read_text(encoding="utf-8"))
    (tmp_path / "paper").mkdir()
    for verdict, words in (
        ("holds", "The speed-up remains"),
        ("does not hold", "speed-up depends on learning rate and start"),
    ):
        next(claim for claim in claims if claim["id"] == "rate-effect")["verdict"] = verdict
        (tmp_path / "paper" / "claims.json").write_text(json.dumps(claims))
        assert words in write_results.findings(tmp_path)


def test_committed_verdicts_are_on_the_claims_of_the_experiments() -> None:
    committed = json.loads((ROOT / "studies" / "paper" / "claims.json").read_text(encoding="utf-8"))
    claims = {claim.id: claim for experiment in all_experiments() for claim in experiment.claims}
    advice = "write it anew: gomhc reproduce, then copy reproduction/claims.json to studies/paper/"
    assert {one["id"]: one["statement"] for one in committed} == {id: c.statement for id, c in claims.items()}, advice


def test_methods_without_pairs_of_runs_have_no_difference(tmp_path: Path) -> None:
    studies = compared(tmp_path, "stage-2", "none", "identity", "go")
    file = studies / "streams" / "stage-2" / "compare.json"
    result = json.loads(file.read_text())
    result["methods"][1] |= {"loss": None, "losses": [None] * 3, "diverged": ["nan"] * 3}
    result["methods"][2] |= {"losses": [1.5, 1.5, None], "diverged": ["nan"]}
    result["differences"][0] |= {"mean": None, "low": None, "high": None, "seeds": [None] * 3}
    file.write_text(json.dumps(result))
    answer = write_results.streams(studies).splitlines()
    assert "| `identity` | too few runs finished | 1.25× |" in answer
    assert "`go` is better than the plain network (`none`), and `identity` is not comparable" in answer[0]
    stage = write_results.streams_stages(studies)
    assert "| `identity` | diverged |  |  | 1.25× |" in stage
    assert "| `go` | 1.5000, 2 of 3 seeds | −0.0100 ± 0.0010 | 2 of 2 seeds | 1.50× |" in stage
