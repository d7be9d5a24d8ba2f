"""`gomhc reproduce` writes one page with a verdict on every claim, whatever happens on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from browser import assert_sound, needs_chromium, open_page
from judgements import judgement

from gomhc.lab.experiments.catalogue import all_experiments
from gomhc.lab.experiments.experiment import Experiment
from gomhc.lab.experiments.story_scores import StoryScores
from gomhc.lab.judge.score_tables import all_tables
from gomhc.lab.lock import lock
from gomhc.lab.results.claim import TRUE, Finding, Headline, Rule, Verdict

CLAIMS = {claim.id: claim for experiment in all_experiments() for claim in experiment.claims}
MEASURED_BY = {claim.id: experiment.name for experiment in all_experiments() for claim in experiment.claims}
RUNNABLE = [experiment for experiment in all_experiments() if experiment.runs("quick")]
SMALL = ("depth", "counts")
"""Experiments of a few seconds: one with many runs of some length, one with tables and a figure."""


def command(out: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "gomhc", "reproduce", "--out", str(out), *arguments]


def reproduce(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, *arguments), capture_output=True, text=True, check=False, timeout=300)


def without_times(page: str) -> str:
    """The page but for the seconds that runs took, in its last table, and the hash of everything."""
    before, after = page.split('<section id="provenance">')
    return before + re.sub(r'(data-label="seconds">)[^<]*|<!-- made from .* -->', r"\1", after)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    done = reproduce(folder, "--only", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "report.html")
    assert re.search(r"\[\d+/\d+\] depth: .*; about \d+ s left", done.stderr)
    return folder


def test_every_claim_has_a_verdict_and_says_where_it_comes_from(out):
    claims = json.loads((out / "claims.json").read_text())
    assert [claim["id"] for claim in claims] == list(CLAIMS)
    for claim in claims:
        assert {"id", "statement", "paper", "here", "verdict"} <= set(claim)
        assert claim["verdict"] in set(Verdict)
        assert all(claim[name] for name in ("statement", "paper", "where", "measure", "here"))
        measured = MEASURED_BY[claim["id"]] in SMALL
        assert (claim["verdict"] != Verdict.NOT_MEASURED) == measured
        assert (claim["value"] is not None) == measured


def test_what_the_counts_say_is_on_the_page(out):
    claims = {claim["id"]: claim for claim in json.loads((out / "claims.json").read_text())}
    assert claims["eight-factorial"]["here"] == "40,320"
    assert claims["table1"]["verdict"] == Verdict.HOLDS
    assert claims["flops-lite"]["verdict"] == Verdict.DOES_NOT_HOLD
    assert "40,320" in (out / "report.html").read_text()


def test_page_opens_with_the_counts_of_verdicts(out):
    claims = [claim for claim in json.loads((out / "claims.json").read_text()) if not claim["source"]]
    counts = Counter(claim["verdict"] for claim in claims)
    html = (out / "report.html").read_text()
    bar = html[html.index('<figure id="opening-1">') : html.index("<nav")]
    assert f"Of {len(claims)} claims of the paper, measured at scale “quick”, {counts['holds']} hold" in html
    for verdict in Verdict:
        assert re.search(rf"<strong>{counts[verdict]}</strong> <span class=\"badge \w+\">{verdict}</span>", bar)
    assert f'aria-label="{counts["holds"]} holds, ' in bar


def test_every_headline_tells_claims_and_plots_of_its_experiment():
    ranks = [headline.rank for experiment in all_experiments() for headline in experiment.headlines]
    assert 5 <= len(ranks) == len(set(ranks)) <= 7
    for experiment in all_experiments():
        for headline in experiment.headlines:
            ids = (headline.claim, *headline.beside)
            assert set(ids) <= {claim.id for claim in experiment.claims}
            findings = {claim: Finding(0.5, "in words") for claim in ids}
            for verdict in (Verdict.HOLDS, Verdict.HOLDS_AT_REDUCED_SCALE, Verdict.DOES_NOT_HOLD):
                number, text = headline.words(findings, verdict)
                assert re.search(r"\d", number)
                assert "{" not in number + text
            assert headline.words(findings, Verdict.NOT_MEASURED) is None
            assert headline.words({headline.claim: Finding(None, "too small")}, Verdict.HOLDS) is None


def test_headline_is_worded_by_its_verdict():
    headline = Headline(
        rank=1, claim="a", beside=("b",), number="{0:.1f}×", holds="yes: {0:g}, {1:g}", fails="no: {text}"
    )
    findings = {"a": Finding(3.14, "about pi"), "b": Finding(2.0, "two")}
    assert headline.words(findings, Verdict.HOLDS_AT_REDUCED_SCALE) == ("3.1×", "yes: 3.14, 2")
    assert headline.words(findings, Verdict.DOES_NOT_HOLD) == ("3.1×", "no: about pi")
    assert headline.words({"a": findings["a"]}, Verdict.HOLDS) is None


@needs_chromium
def test_filter_shows_the_claims_of_one_verdict_without_scripts(out, tmp_path):
    claims = json.loads((out / "claims.json").read_text())
    html = (out / "report.html").read_text()
    assert "<script" not in html
    chosen = re.sub(r'(class="show-all") checked', r"\1", html).replace('class="show-bad"', 'class="show-bad" checked')
    seen = open_page(chosen, tmp_path)
    assert_sound(seen)
    shown = [row for row in seen["rows"] if row.startswith("claim-")]
    assert shown == [f"claim-{claim['id']}" for claim in claims if claim["verdict"] == Verdict.DOES_NOT_HOLD]
    assert 0 < len(shown) < len([row for row in open_page(html, tmp_path)["rows"] if row.startswith("claim-")])


@needs_chromium
def test_page_is_sound_in_a_browser(out, tmp_path):
    seen = open_page((out / "report.html").read_text(), tmp_path)
    assert_sound(seen)
    assert len(seen["plots"]) == len(SMALL)


def test_a_second_time_nothing_runs_and_a_damaged_record_is_named_and_made_again(out):
    page = (out / "report.html").read_text()
    broken = sorted((out / "records" / "depth").iterdir())[0]
    whole = json.loads(broken.read_text())
    broken.write_text('{"experiment": "depth"')
    done = reproduce(out, "--only", *SMALL)
    assert f"damaged record: {broken}" in done.stderr
    assert "15 runs kept, 1 to do" in done.stderr
    assert json.loads(broken.read_text())["metrics"] == whole["metrics"]
    assert without_times((out / "report.html").read_text()) == without_times(page)
    again = reproduce(out, "--only", "counts", "--format", "md")
    assert "9 runs kept, 0 to do" in again.stderr
    text = (out / "report.md").read_text()
    assert "## Depth decoupling" in text  # which an earlier command kept
    assert "| **holds** |" in text


def test_a_page_is_drawn_again_only_if_something_has_changed(out, tmp_path):
    folder = shutil.copytree(out, tmp_path / "reproduction")
    page = (folder / "report.html").read_text()
    drawn = "drawing the page"
    assert drawn not in reproduce(folder, "--only", *SMALL).stderr
    assert (folder / "report.html").read_text() == page
    (folder / "report.html").write_text(page[:-100])  # as a broken copy
    assert drawn in reproduce(folder, "--only", *SMALL).stderr
    assert (folder / "report.html").read_text() == page
    (folder / "judge.json").write_text(judgement().to_json())
    assert drawn in reproduce(folder, "--only", *SMALL).stderr
    assert 'id="judge"' in (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def judged(out, tmp_path_factory):
    """The same folder after `gomhc judge --out` has left its scores there."""
    folder = shutil.copytree(out, tmp_path_factory.mktemp("judged") / "reproduction")
    (folder / "judge.json").write_text(judgement(missing=0.1).to_json())
    for kind in ("html", "md"):
        done = reproduce(folder, "--only", *SMALL, "--format", kind)
        assert done.returncode == 0, done.stderr
        assert "16 runs kept, 0 to do" in done.stderr
    return folder


def test_judged_stories_are_a_section_of_the_page_and_their_claims_lead_to_it(judged):
    html, text = ((judged / f"report.{kind}").read_text() for kind in ("html", "md"))
    section = html[html.index('<section id="judge">') : html.index('<section id="provenance">')]
    assert "Stories judged by judge &lt;a&gt;" in section
    for table in all_tables(judgement(missing=0.1)):
        for cell in (cell for rows in table.sections for row in rows for cell in row[1:]):
            emphasis = {"": "{}", "maximum": "<strong>{}</strong>", "near": "<u>{}</u>"}[cell.mark]
            assert emphasis.format(cell.text) in section
    assert "<strong>" in section
    assert "## Stories, judged by language models" in text
    for claim in StoryScores.claims:
        assert f'href="#claim-{claim.id}"' in section
        row = html[html.index(f'<tr id="claim-{claim.id}"') :].partition("</tr>")[0]
        assert '<a href="#judge">judge</a>' in row
        assert Verdict.NOT_MEASURED in row  # other judges, prompts and models than the paper's decide nothing
    assert text.count("[judge](#judge)") == len(StoryScores.claims)
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(re.findall(r'<a id="([^"]+)"></a>', text))


def test_where_nothing_was_judged_nothing_is_said_of_it(out):
    html = (out / "report.html").read_text()
    assert 'id="judge"' not in html
    assert 'href="#judge"' not in html


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (500, True)])
def test_page_with_judged_stories_is_sound_in_a_browser(judged, tmp_path, width, dark):
    seen = open_page((judged / "report.html").read_text(), tmp_path, width=width, dark=dark)
    assert_sound(seen)
    assert seen["overflow"] <= 0
    assert len([name for name, *_ in seen["figures"] if name.startswith("judge-")]) == 6


def test_a_damaged_judgement_is_told_in_one_line_before_anything_is_measured(tmp_path):
    (tmp_path / "judge.json").write_text(judgement().to_json()[:1000])
    done = reproduce(tmp_path, "--only", "counts")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path / 'judge.json'}: this is not a judgement that gomhc judge wrote: ")
    assert done.stderr.strip().endswith(f"; write it again with gomhc judge --out {tmp_path}, or move it away")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["judge.json"]


def test_killed_in_the_middle_and_started_again_it_writes_the_same_page(out, tmp_path):
    process = subprocess.Popen(
        command(tmp_path, "--only", *SMALL, "--jobs", "2"), start_new_session=True, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and len(list(tmp_path.glob("records/*/*.json"))) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = len(list(tmp_path.glob("records/*/*.json")))
    assert not (tmp_path / "report.html").exists()
    done = reproduce(tmp_path, "--only", *SMALL)
    assert f"{kept} runs kept, {16 - kept} to do" in done.stderr
    assert without_times((tmp_path / "report.html").read_text()) == without_times((out / "report.html").read_text())


def processes_of(session):
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    found = []
    for folder in folders:
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if after_name[3] == str(session) and after_name[0] != "Z":
            found.append(folder.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux, to see other processes")
def test_killed_alone_it_leaves_no_worker_behind(tmp_path):
    process = subprocess.Popen(
        command(tmp_path, "--only", "fig6", "--jobs", "2"), start_new_session=True, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("records/*/*.json"))) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(processes_of(process.pid)) >= 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while processes_of(process.pid):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.1)


def test_hidden_files_of_others_stay(tmp_path):
    names = (".env.template", ".vimrc.20240101")
    for name in names:
        (tmp_path / name).write_text("precious")
    (tmp_path / ".report.html.a1b2c3d4").write_text("half")
    assert reproduce(tmp_path, "--only", "counts").returncode == 0
    assert all((tmp_path / name).read_text() == "precious" for name in names)
    assert not (tmp_path / ".report.html.a1b2c3d4").exists()


def test_two_do_not_work_in_one_folder(tmp_path):
    with lock(tmp_path / ".lock", "it"):
        done = reproduce(tmp_path, "--only", "counts")
    assert done.returncode == 1
    assert re.fullmatch(rf"error: {tmp_path} is in use by process {os.getpid()} \(.*\) on .*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_interrupted_it_says_how_to_go_on(tmp_path):
    process = subprocess.Popen(command(tmp_path, "--only", "depth", "--jobs", "1"), stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("records/*/*.json")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert "the same command continues from here" in process.communicate(timeout=60)[1]
    assert process.returncode == 1


def test_list_tells_every_experiment(tmp_path):
    printed = reproduce(tmp_path, "--list").stdout
    assert [line.split()[0] for line in printed.splitlines()] == [experiment.name for experiment in RUNNABLE]


def test_unknown_experiment_is_answered_with_those_there_are(tmp_path):
    done = reproduce(tmp_path, "--only", "fig99")
    assert done.returncode == 1
    assert re.search(r"error: --only must be one of exactness, .*, got .fig99.$", done.stderr.strip())
    assert "Traceback" not in done.stderr


def test_every_measured_claim_has_a_rule_and_an_experiment_and_every_other_a_reason():
    for experiment in all_experiments():
        for claim in experiment.claims:
            assert (claim.rule is None) == (experiment not in RUNNABLE), claim.id
            assert claim.measure


def test_every_experiment_is_shown_and_says_what_the_paper_says():
    for experiment in all_experiments():
        assert experiment.title
        assert len(experiment.paper) > 40
        shown = type(experiment).exhibits is not Experiment.exhibits
        assert shown == (experiment in RUNNABLE)


def test_verdict_follows_from_the_number_and_from_the_size():
    claim = CLAIMS["fig6-floor-go"]
    assert claim.rule == Rule(0.98, 1.02)
    assert claim.verdict(Finding(1.0, ""), full_size=True) is Verdict.HOLDS
    assert claim.verdict(Finding(1.0, ""), full_size=False) is Verdict.HOLDS_AT_REDUCED_SCALE
    assert claim.verdict(Finding(1.0, "", full_size=True), full_size=False) is Verdict.HOLDS
    assert claim.verdict(Finding(1.03, ""), full_size=True) is Verdict.DOES_NOT_HOLD
    assert claim.verdict(Finding(float("nan"), ""), full_size=True) is Verdict.DOES_NOT_HOLD
    assert claim.verdict(None, full_size=True) is Verdict.NOT_MEASURED
    assert claim.verdict(Finding(None, "too small to tell"), full_size=False) is Verdict.NOT_MEASURED


@pytest.mark.parametrize(
    ("rule", "text"), [(Rule(at_least=2), "≥ 2"), (Rule(at_most=3), "≤ 3"), (Rule(1, 2), "1 to 2"), (TRUE, "= 1")]
)
def test_rules_read_as_words(rule, text):
    assert str(rule) == text


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules[{package!r}] = None; from gomhc.lab.cli import main; main()"
    command = [sys.executable, "-c", code, "reproduce", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_experiments_are_listed_without_joblib():
    assert without("joblib", "--list").stdout.startswith("exactness ")


def test_without_matplotlib_every_verdict_is_there_and_no_page(out, tmp_path):
    shutil.copytree(out / "records", tmp_path / "records")
    done = without("matplotlib", "--only", *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "claims.json")
    assert "no page will be written, because matplotlib is missing" in done.stderr
    assert (tmp_path / "claims.json").read_bytes() == (out / "claims.json").read_bytes()
    assert not (tmp_path / "report.html").exists()
