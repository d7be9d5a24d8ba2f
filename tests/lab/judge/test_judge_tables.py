"""Tables say what the scores say, with the paper's marks, wherever they are shown."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from browser import assert_sound, needs_chromium, open_page
from judgements import judgement
from rich.console import Console

from gomhc.lab.cli.score_table import terminal_table
from gomhc.lab.files import unseal
from gomhc.lab.judge.judgement import Judgement, marks
from gomhc.lab.judge.score_tables import all_tables, scores_table
from gomhc.lab.report.judge_latex import latex
from gomhc.lab.report.judge_page import judge_page, rankings
from gomhc.statistics import Estimate

# The third of the paper's tables has equal means of which one is bold, so its marks need digits that it does not print.
PAPER = {
    "GPT-4.1": """
        Residual & $6.20 \\pm 0.11$ & $\\underline{5.87 \\pm 0.09}$ & $4.83 \\pm 0.09$
        mHC-lite & $\\underline{6.58 \\pm 0.12}$ & $5.80 \\pm 0.07$ & $\\underline{5.13 \\pm 0.11}$
        KromHC & $\\underline{6.56 \\pm 0.13}$ & $5.79 \\pm 0.07$ & $5.07 \\pm 0.11$
        go-mHC (1) & $\\underline{6.57 \\pm 0.11}$ & $5.74 \\pm 0.07$ & $\\underline{5.12 \\pm 0.09}$
        go-mHC (2) & $\\mathbf{6.63 \\pm 0.12}$ & $\\mathbf{5.88 \\pm 0.06}$ & $\\mathbf{5.22 \\pm 0.11}$""",
    "GPT-4.1 Nano": """
        Residual & $6.20 \\pm 0.10$ & $\\underline{6.29 \\pm 0.09}$ & $5.47 \\pm 0.10$
        mHC-lite & $\\mathbf{6.47 \\pm 0.10}$ & $\\mathbf{6.33 \\pm 0.07}$ & $\\mathbf{5.82 \\pm 0.09}$
        KromHC & $6.26 \\pm 0.11$ & $6.25 \\pm 0.08$ & $5.63 \\pm 0.10$
        go-mHC (1) & $\\underline{6.45 \\pm 0.10}$ & $\\underline{6.30 \\pm 0.10}$ & $5.70 \\pm 0.09$
        go-mHC (2) & $\\underline{6.43 \\pm 0.11}$ & $6.25 \\pm 0.08$ & $\\underline{5.80 \\pm 0.11}$""",
}


def in_terminal(found):
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    for table in all_tables(found):
        console.print(terminal_table(table))
    return console.file.getvalue()


def in_markdown(found):
    return judge_page(found).markdown()


def in_html(found):
    return judge_page(found).html()


@pytest.mark.parametrize("name", PAPER)
def test_marks_are_those_of_the_papers_tables(name):
    rows = [line.split("&")[1:] for line in PAPER[name].strip().splitlines()]
    for column in zip(*rows, strict=True):
        numbers = [[float(number) for number in re.findall(r"\d\.\d\d", cell)] for cell in column]
        estimates = [Estimate(mean=mean, standard_error=error, count=70) for mean, error in numbers]
        printed = ["maximum" if "mathbf" in cell else "near" if "underline" in cell else "" for cell in column]
        assert marks(estimates) == printed


def test_nothing_is_near_a_maximum_of_unknown_error_and_nothing_is_marked_where_there_is_nothing():
    one = [Estimate(mean=m, standard_error=np.nan, count=1) for m in (5.0, 5.0, 4.9)]
    assert marks(one) == ["maximum", "maximum", ""]
    assert marks([Estimate(mean=np.nan, standard_error=np.nan, count=0)]) == [""]


def test_score_of_a_story_is_the_mean_of_its_trials_and_its_models_the_mean_of_its_stories():
    found = judgement()
    row = found.model_scores(1)[0]
    stories = found.scores[1, 0, :, :, 2].mean(axis=1)
    assert row.estimates[2].mean == pytest.approx(stories.mean())
    assert row.estimates[2].standard_error == pytest.approx(stories.std(ddof=1) / np.sqrt(12))


def test_a_missing_trial_leaves_the_other_trials_of_its_story_and_a_missing_story_the_other_stories():
    found = judgement()
    found.scores[0, 0, 3, 1] = np.nan
    found.scores[0, 0, 5] = np.nan
    row = found.model_scores(0)[0]
    assert row.missing == 4
    assert row.estimates[0].count == 11
    assert found.consensus[0, 0, 3, 0] == pytest.approx(found.scores[0, 0, 3, [0, 2], 0].mean())


def test_stories_that_a_model_has_not_written_are_not_missing_and_pairs_are_of_the_same_opening():
    found = judgement(openings=6)
    found.scores[:, 0, 4] = np.nan
    found.written[0, 4] = False
    assert [(row.missing, row.trials) for row in found.model_scores(0)] == [(0, 15), (0, 18)]
    (pair,) = found.comparisons(0)
    both = [0, 1, 2, 3, 5]
    expected = (found.consensus[0, 0, both, 1] - found.consensus[0, 1, both, 1]).mean()
    assert pair.differences[1].mean == pytest.approx(expected)
    assert pair.differences[1].count == 5


def resealed(values):
    """As somebody else could write them, with a checksum that fits."""
    body = json.dumps(values)[1:]
    return f'{{"sha256": "{hashlib.sha256(body.encode()).hexdigest()}",\n{body}'


def test_a_judgement_outlives_json():
    found = judgement(missing=0.2)
    copy = Judgement.from_json(found.to_json())
    assert np.array_equal(copy.scores, found.scores, equal_nan=True)
    assert in_markdown(copy) == in_markdown(found)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"criteria": ["wit"]}', "[" * 100_000, b"\xff\xfe\xfa", "null"])
def test_what_is_no_judgement_is_told(text):
    with pytest.raises(ValueError, match="not a judgement that gomhc judge wrote"):
        Judgement.from_json(text)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("models", ["plain"], r"= \(2, 1, 12, 3, 3\), got \(2, 2, 12, 3, 3\)"),
        ("scores", [], r"got \(0,\)"),
        ("scores", [[1], [2, 3]], "inhomogeneous"),
        ("scores", "high", "could not convert"),
        ("written", [True], r"must fit \(2, 2, 12\) judges, models and openings, got \(1,\) and 2"),
        ("reasons", [{}], r"got \(2, 12\) and 1"),
        ("reasons", [1, 2], "expected reasons as objects of counts"),
        ("judges", None, "not iterable"),
    ],
)
def test_a_judgement_whose_parts_do_not_fit_is_none(name, value, told):
    whole = unseal(judgement().to_json().encode())
    with pytest.raises(ValueError, match=f"not a judgement that gomhc judge wrote: .*{told}"):
        Judgement.from_json(resealed({**whole, name: value}))
    del whole[name]
    with pytest.raises(ValueError, match=f"'{name}' is missing"):
        Judgement.from_json(resealed(whole))


@pytest.mark.parametrize("score", [0, 11, float("inf"), 10**400])
def test_a_score_that_no_judge_may_give_is_told(score):
    whole = unseal(judgement().to_json().encode())
    whole["scores"][1][0][3][2][1] = score
    with pytest.raises(ValueError, match="not a judgement that gomhc judge wrote"):
        Judgement.from_json(resealed(whole))


def test_a_file_that_is_no_judgement_is_named_with_the_way_out(tmp_path):
    file = tmp_path / "judge.json"
    file.write_text(judgement().to_json()[:-100])
    with pytest.raises(
        ValueError, match=rf"^{file}: this is not .*; write it again with gomhc judge --out {tmp_path}, or"
    ):
        Judgement.load(file)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("write", [in_terminal, in_markdown, latex, in_html])
def test_every_format_has_the_same_numbers(write, missing):
    found = judgement(missing=missing)
    text = re.sub(r"\x1b\[[\d;]*m", "", write(found))
    for written, meant in {
        r"\pm": "±",
        r"$\rho$": "ρ",
        r"\ [": " [",
        r"\[": "[",
        r"\]": "]",
        "^{*}": " *",
        r"\*": "*",
    }.items():
        text = text.replace(written, meant)
    for table in all_tables(found):
        for section in table.sections:
            for row in section:
                for cell in row[1:]:
                    assert cell.text in text
    for judge in range(2):
        assert sum(row.missing for row in found.model_scores(judge)) == found.reasons[judge].get("refused", 0)


def test_maximum_is_bold_and_near_is_underlined_in_every_format():
    found = judgement(seed=3)
    found.scores[:, 1] = found.scores[:, 0]
    found.scores[:, 0, 0] += 0.01  # a little better, by less than its error
    best, near = (row[1].text for row in scores_table(found, 0).sections[0])
    assert f"**{best}**" in in_markdown(found)
    assert f"<u>{near}</u>" in in_markdown(found)
    assert f"<strong>{best}</strong>" in in_html(found)
    assert f"<u>{near}</u>" in in_html(found)
    assert rf"$\mathbf{{{best}}}$".replace("±", r"\pm") in latex(found)
    assert rf"$\underline{{{near}}}$".replace("±", r"\pm") in latex(found)
    assert f"\x1b[1m{best}\x1b[0m" in in_terminal(found)
    assert f"\x1b[4m{near}\x1b[0m" in in_terminal(found)


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (500, True)])  # headless Chromium has no narrower window
def test_page_is_sound_in_a_browser(tmp_path, width, dark):
    found = judgement(missing=0.1)
    seen = open_page(in_html(found), tmp_path, width=width, dark=dark)
    assert_sound(seen)
    assert len(seen["figures"]) == 1 + len(all_tables(found)) == 6
    assert seen["overflow"] <= 0  # wide tables scroll in themselves


def test_page_opens_with_the_ranking_and_what_is_significant():
    found = judgement(models=("low", "high"), judges=("a",), openings=40)
    (said,) = rankings(found)
    assert re.match(
        r"a ranks high \(\d\.\d\d\), low \(\d\.\d\d\), by the mean over all criteria\. high is signif", said
    )
    assert "95 % interval +" in said
    page = in_html(found)
    assert page.index("a ranks high") < page.index("<svg") < page.index("<table")


def test_ranking_is_by_the_mean_over_criteria_and_differences_are_paired_by_opening():
    found = judgement(models=("low", "high", "middle"), judges=("a",), openings=30)
    consensus = found.consensus[0].mean(axis=-1)
    ranking = found.ranking(0)
    assert [place.model for place in ranking] == [found.models[m] for m in np.argsort(-consensus.mean(axis=1))]
    behind = consensus[found.models.index(ranking[0].model)] - consensus[found.models.index(ranking[1].model)]
    assert ranking[0].behind is None
    assert ranking[1].behind.mean == pytest.approx(behind.mean())
    assert ranking[1].behind.low < behind.mean() < ranking[1].behind.high


def test_equal_models_are_not_told_apart():
    one = judgement(models=("a",), judges=("j",), openings=20)
    scores = np.concatenate((one.scores, one.scores[:, :, ::-1]), axis=1)
    twins = replace(one, models=("a", "b"), scores=scores, written=np.ones((2, 20), dtype=bool))
    assert "No difference is shown between a and b (+0.00, 95 % interval −" in rankings(twins)[0]
    assert rankings(one)[0].startswith("j gives a (")


def test_judge_without_scores_is_told():
    assert rankings(judgement(missing=1.0))[0] == "judge <a> gave no scores."


def test_names_cannot_break_a_table():
    text = in_html(judgement(models=("<script>", "a & b")))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "judge &lt;a&gt;" in text
    assert r"b\|c" in in_markdown(judgement())
    assert r"go\_s=2 \& co" in latex(judgement())
    assert "[red]" in in_terminal(judgement(models=("[red]", "b")))
    assert "{[}red{]} &" in latex(judgement(models=("[red]", "b")))


def test_one_judge_one_model_and_one_trial_make_one_table_without_reliability():
    (table,) = all_tables(judgement(models=("m",), judges=("j",), trials=1))
    assert len(table.sections) == 1
    assert "ICC(3,1)" not in [row[0].text for section in table.sections for row in section]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_is_set_without_errors(tmp_path):
    head = r"\documentclass{article}\usepackage{booktabs,amsmath}\begin{document}"
    (tmp_path / "t.tex").write_text(
        f"{head}\n{latex(judgement(models=('[a]', 'b_&%$#^~{}', 'ok'), missing=0.1))}\n\\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
