"""Ten minutes of what machines and people do to files and commands: `make chaos`.

Every sweep ends when it has tried everything or its share of the time is over, and tells what it counted:

    kills       training killed at every file event and at random moments: the same losses and weights, bit for bit
    reproduce   killed with its workers running: no record lost or made twice, no process left behind
    flips       one bit flipped in each file that is read back: noticed, or without effect
    commands    bad command lines, the listed ones and random ones: one line each, no traceback
    pairs       two processes that want one run: one gets it, the other is told
    judge       an endpoint that misbehaves, and kills: every answer once

`python tests/chaos.py --only flips --seconds 60` runs one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked, and share two cores
sys.path.insert(0, str(Path(__file__).parent / "support"))

import torch
from command_lines import LISTED, random_command_line
from judge_server import BAD, SILENT, Judge, serve
from small_runs import small_recipe

import gomhc.lab.cli
from gomhc.lab.data import tokens
from gomhc.lab.data.corpora import find
from gomhc.lab.experiments import schedule
from gomhc.lab.experiments.catalogue import all_experiments
from gomhc.lab.judge import evaluation
from gomhc.lab.judge.answer_store import Answer, AnswerStore
from gomhc.lab.judge.answers import Scores
from gomhc.lab.judge.judgement import Judgement
from gomhc.lab.judge.protocol import Prompts, Protocol, Settings
from gomhc.lab.judge.stories import Story
from gomhc.lab.lock import InUse
from gomhc.lab.results.record import Store as Records
from gomhc.lab.training import Execution, Recipe, checkpoint, resume, train
from gomhc.lab.training.history import FILE, read

CPU = Execution(device="cpu")
MEMORY = 6 * 2**30
"""Bytes of address space beyond the parent's that a command line may take."""


# Children
# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Ended:
    """How a child ended: its exit code, or minus the signal that killed it, and what it printed."""

    code: int
    output: str


def forked(function: Callable[..., object], *args: Any, seconds: float = 120, kill_after: float | None = None) -> Ended:
    """Call a function in a copy of this process; it is killed after `kill_after` seconds."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
                function(*args)
                code = 0
            except SystemExit as stop:
                if isinstance(stop.code, str):
                    print(stop.code, file=sys.stderr)
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        limit = time.monotonic() + (seconds if kill_after is None else kill_after)
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < limit:
            time.sleep(0.001 if kill_after is not None else 0.01)
        if ended[0] == 0:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            assert kill_after is not None, f"took more than {seconds:.0f} s: {function.__name__} {args}"
        file.seek(0)
        return Ended(os.waitstatus_to_exitcode(ended[1]), file.read().decode(errors="replace"))


def die_at_event(folders: tuple[Path, ...], number: int) -> None:
    """From now on, this process is killed at its n-th opening, renaming, making or deleting in these folders."""
    count = 0

    def look(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"):
            paths = [os.fsdecode(path) for path in args[:2] if isinstance(path, str | bytes | os.PathLike)]
            if any(path.startswith(str(folder)) for path in paths for folder in folders):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


# Training
# ----------------------------------------------------------------------------------------------------------------------


def train_or_resume(recipe: Recipe, run: Path, event: int | None = None) -> None:
    if event is not None:
        die_at_event((run, Path(os.environ["GOMHC_CACHE"])), event)
    torch.set_num_threads(1)
    if checkpoint.steps(run):
        resume(run, CPU)
    else:
        train(recipe, run, CPU)


def result(run: Path) -> tuple[list[dict[str, Any]], bytes]:
    records = [{name: value for name, value in record.items() if name != "seconds"} for record in read(run)]
    return records, (checkpoint.folder_of(run, checkpoint.steps(run)[-1]) / checkpoint.WEIGHTS).read_bytes()


def leftovers(run: Path) -> list[Path]:
    """Files that a finished run should not have."""
    hidden = list(run.rglob(".*"))
    return hidden + [path for path in run.rglob("*") if re.match("partial|damaged", path.name)]


def kills(folder: Path, end: float, rng: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    os.environ["GOMHC_CACHE"] = str(folder / "cache")
    recipe, expected = small_recipe(folder / "corpus.txt", dropout=0.1, keep=2), folder / "whole"
    assert forked(train_or_resume, recipe, expected).code == 0
    begin = time.monotonic()
    assert forked(train_or_resume, recipe, folder / "again").code == 0
    length = time.monotonic() - begin

    def finish(run: Path) -> None:
        for _ in range(3):
            ended = forked(train_or_resume, recipe, run)
            if ended.code == 0:
                break
        assert ended.code == 0, ended.output
        assert result(run) == result(expected), f"{run} differs"
        assert checkpoint.steps(run) == checkpoint.steps(expected)
        assert not leftovers(run), leftovers(run)
        shutil.rmtree(run)

    event, ended_by_itself = 0, False
    while not ended_by_itself and time.monotonic() < begin + (end - begin) * 0.9:
        event += 1
        run = folder / f"event-{event}"
        os.environ["GOMHC_CACHE"] = str(folder / f"cache-{event}")  # so that the cache is made while we kill
        ended_by_itself = forked(train_or_resume, recipe, run, event).code == 0
        counts["kills at a file event"] += not ended_by_itself
        finish(run)
        shutil.rmtree(folder / f"cache-{event}")
    if ended_by_itself:
        counts["file events, which are all"] = event - 1
    while time.monotonic() < end:
        run = folder / "random"
        for _ in range(rng.randrange(1, 4)):
            counts["kills at random"] += (
                forked(train_or_resume, recipe, run, kill_after=rng.uniform(0, length)).code < 0
            )
        finish(run)
    return counts


# Reproduce
# ----------------------------------------------------------------------------------------------------------------------


def processes_of(session: int) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "sess=,pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.split()[0] == str(session)]


def reproduce(folder: Path, end: float, rng: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    only = ("depth", "counts")
    while time.monotonic() < end:
        out = folder / f"reproduce-{counts['kills']}"
        command = [sys.executable, "-m", "gomhc", "reproduce", "--jobs", "2", "--out", str(out), "--only", *only]
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(2, 7))
        process.kill()  # the parent alone
        process.wait()
        counts["kills"] += 1
        limit = time.monotonic() + 20
        while processes_of(process.pid) and time.monotonic() < limit:
            time.sleep(0.2)
        assert not processes_of(process.pid), processes_of(process.pid)
        before = {path: path.stat().st_mtime_ns for path in out.glob("records/*/*.json")}
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"{len(before)} runs kept" in done.stderr, done.stderr
        assert all(path.stat().st_mtime_ns == moment for path, moment in before.items())
        assert not [path for path in out.rglob(".*") if path.name != ".lock"]
        counts["records kept"] += len(before)
        shutil.rmtree(out)
    return counts


# Flipped bits
# ----------------------------------------------------------------------------------------------------------------------


def flips(folder: Path, end: float, rng: random.Random) -> Counter[str]:
    """Each way of reading gives what was written, or an error or a warning, whatever bit is flipped."""
    counts: Counter[str] = Counter()
    os.environ["GOMHC_CACHE"] = str(folder / "cache")
    recipe, run = replace(small_recipe(folder / "corpus.txt", dropout=0.1, keep=2), keep=1), folder / "run"
    assert forked(train_or_resume, recipe, run).code == 0
    newest = checkpoint.folder_of(run, checkpoint.steps(run)[-1])
    ways = [*ways_of_checkpoint(run, newest), *ways_of_cache(recipe), *ways_of_records(folder), *ways_of_judge(folder)]
    share = (end - time.monotonic()) / len(ways)
    for file, look in ways:
        content, expected = file.read_bytes(), look()
        limit, places = time.monotonic() + share, list(range(8 * len(content)))
        rng.shuffle(places)
        for place in places:
            damaged = bytearray(content)
            damaged[place // 8] ^= 1 << place % 8
            file.write_bytes(damaged)
            counts[f"{file.name}: flips"] += 1
            try:
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    same = look() == expected
                noticed = bool(warned)
            except InUse:
                raise  # which would say nothing about the bit
            except ValueError:
                noticed = True
            if noticed:
                counts[f"{file.name}: noticed"] += 1
            else:
                assert same, f"bit {place % 8} of byte {place // 8} of {file} was accepted"
                counts[f"{file.name}: without effect"] += 1
            if time.monotonic() > limit:
                break
        file.write_bytes(content)
        for beside in file.parent.glob(f"{file.name}-*"):  # what SQLite keeps there
            beside.unlink()
    return counts


Way = tuple[Path, Callable[[], object]]


def ways_of_checkpoint(run: Path, newest: Path) -> Iterator[Way]:
    def loaded() -> object:
        found = checkpoint.load(run)
        tensors = {**found.weights, **found.optimizer}
        return replace(found, weights={}, optimizer={}), {name: value.tolist() for name, value in tensors.items()}

    for name in (checkpoint.STATE, checkpoint.WEIGHTS, checkpoint.OPTIMIZER):
        yield newest / name, loaded

    def history() -> object:
        from gomhc.lab.training.history import _first_bytes

        kept = _first_bytes(run / FILE, *checkpoint.load(run).history)
        if kept is None:
            raise ValueError("noticed")
        return kept

    yield run / FILE, history


def ways_of_cache(recipe: Recipe) -> Iterator[Way]:
    def prepared() -> object:
        data = tokens._load(folder, "character")
        return data and (data.tokenizer, data.train.tolist(), data.validation.tolist(), data.fingerprint)

    tokens.prepare(find(recipe.corpus), "character")
    (folder,) = (Path(os.environ["GOMHC_CACHE"]) / "tokens").iterdir()
    for file in sorted(folder.iterdir()):
        yield file, prepared


def ways_of_records(folder: Path) -> Iterator[Way]:
    (experiment,) = (experiment for experiment in all_experiments() if experiment.name == "counts")
    task = schedule.tasks_of([experiment], "quick")[0]
    store = Records(folder / "records")
    assert forked(lambda: list(schedule.perform([task], store, 1))).code == 0
    yield store.path("counts", task.key), lambda: store.load("counts", task.key)


def ways_of_judge(folder: Path) -> Iterator[Way]:
    written = {name: [Story(f"Opening {n}", f"{name} {n}") for n in range(3)] for name in ("plain", "go")}
    questions = evaluation.all_questions(written, ["judge"], 2, "protocol")
    file = folder / "judge.sqlite"
    with AnswerStore(file) as store:
        store.keep_stories("weights", "sampling", written["go"])
        for number, question in enumerate(questions):
            scores = Scores(*(1 + (number + k) % 10 for k in range(3)))
            store.keep_answer(question, Answer(scores=scores, text="an answer", input_tokens=number))
        judgement = evaluation.judgement(written, ["judge"], 2, "protocol", store)

    def answers() -> object:
        with AnswerStore(file) as store:
            return [store.answer(question) for question in questions], store.stories("weights", "sampling")

    yield file, answers
    (folder / "judge.json").write_text(judgement.to_json())
    yield folder / "judge.json", lambda: Judgement.load(folder / "judge.json").to_json()


# Command lines
# ----------------------------------------------------------------------------------------------------------------------


def command(arguments: list[str]) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    torch.set_num_threads(1)
    sys.argv = ["gomhc", *arguments]
    gomhc.lab.cli.main()


def complaint(ended: Ended) -> str | None:
    """What is wrong with how a command ended: it should have worked, or have said what is wrong in one line."""
    lines = [line for line in ended.output.splitlines() if re.match("error|interrupted|gomhc judge:", line)]
    if "Traceback" in ended.output:
        return "a traceback"
    if ended.code < 0:
        return f"signal {-ended.code}"
    if ended.code != 0 and len(lines) != 1:
        return f"{len(lines)} lines"
    return "tyro's own words" if "tyro" in ended.output else None


def commands(folder: Path, end: float, rng: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    os.environ["GOMHC_CACHE"] = str(folder / "cache")
    recipe, run = small_recipe(folder / "corpus.txt", dropout=0.1, keep=2), folder / "run"
    assert forked(train_or_resume, recipe, run).code == 0
    (folder / "stories.jsonl").write_text('{"opening": "Once", "completion": " more"}\n')
    os.chdir(folder)
    complaints = []
    for arguments in LISTED:
        ended = forked(command, arguments)
        found = complaint(ended) or ("accepted" if ended.code == 0 else None)
        complaints += [(found, arguments, ended)] if found else []
        counts["listed"] += 1
    while time.monotonic() < end:
        arguments = random_command_line(rng)
        ended = forked(command, arguments, seconds=90)
        found = complaint(ended)
        complaints += [(found, arguments, ended)] if found else []
        counts["random: refused" if ended.code else "random: ran"] += 1
    assert not complaints, "\n".join(map(str, complaints))
    return counts


# Two at once
# ----------------------------------------------------------------------------------------------------------------------


def pairs(folder: Path, end: float, rng: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    os.environ["GOMHC_CACHE"] = str(folder / "cache")
    recipe = replace(
        small_recipe(folder / "corpus.txt", dropout=0.1, keep=2), steps=150, evaluate_every=50, save_every=10
    )  # seconds, to meet each other
    expected = folder / "whole"
    assert forked(train_or_resume, recipe, expected).code == 0
    values = {field.name.replace("_", "-"): str(getattr(recipe, field.name)) for field in fields(recipe)}
    options = [word for name, value in values.items() for word in (f"--{name}", value)]
    while time.monotonic() < end:
        os.chdir(tempfile.mkdtemp(dir=folder))
        codes = together([["train", *options]] * 2, rng)
        assert [ended.code for ended in codes] == [0, 0], codes
        for name in ("runs/go-1", "runs/go-2"):
            assert result(Path(name)) == result(expected), name
        counts["pairs of new runs, both whole"] += 1

        run = Path("resumed").resolve()
        while not checkpoint.steps(run):
            forked(train_or_resume, recipe, run, kill_after=rng.uniform(0.2, 1.5))
        ended = together([["train", "--resume", str(run)]] * 2, rng)
        refused = [one.output for one in ended if one.code != 0]
        assert len(refused) < 2, refused
        for output in refused:
            assert re.search(r"error: .* is in use by process \d+ \(.*\) on .*\n", output), output
        assert result(run) == result(expected)
        counts["pairs of resumed runs: one refused" if refused else "pairs of resumed runs: one after the other"] += 1
    return counts


def together(lines: list[list[str]], rng: random.Random) -> list[Ended]:
    """Commands that run at the same time."""
    started = []
    for arguments in lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "gomhc", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        time.sleep(rng.choice((0, 0, 0.2)))
    outputs = [process.communicate(timeout=120)[0] for process in started]
    return [Ended(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


# A judge
# ----------------------------------------------------------------------------------------------------------------------


def judge(folder: Path, end: float, rng: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    protocol = Protocol(prompts=Prompts.load(), settings=Settings())
    written = {name: [Story(f"Opening {n}, and", f" {name} {n}.") for n in range(10)] for name in ("plain", "go")}
    questions = evaluation.all_questions(written, ["judge"], 3, protocol.key)
    kinds = [kind for kind in (*SILENT, *BAD) if kind != "time-out"]

    def behave(question: object, number: int) -> str:
        counts["requests"] += 1
        return rng.choice(kinds) if number < 5 and rng.random() < 0.5 else "right"

    os.environ["OPENAI_API_KEY"] = "sk-a-key-that-is-written-nowhere"
    while time.monotonic() < end:
        work = Path(tempfile.mkdtemp(dir=folder))
        for name, texts in written.items():
            lines = [json.dumps({"opening": text.opening, "completion": text.completion}) for text in texts]
            (work / f"{name}.jsonl").write_text("\n".join(lines))
        with serve(Judge(questions, behave)) as endpoint:
            arguments = ["judge", *(str(path) for path in sorted(work.glob("*.jsonl"))), "--model", "judge"]
            arguments += ["--base-url", endpoint.url, "--store", str(work / "judge.sqlite"), "--out", str(work)]
            arguments += ["--pause", "0.001", "--timeout", "20", "--attempts", "9"]
            for _ in range(3):
                counts["kills"] += forked(command, arguments, kill_after=rng.uniform(0.2, 1.5)).code < 0
            ended = forked(command, arguments)
            assert ended.code == 0, ended.output
            # An answer that was on its way when the process was killed is asked for again; nothing else is.
            assert sum(endpoint.answered.values()) <= len(questions) + 3 * 8
        with AnswerStore(work / "judge.sqlite") as store:
            answers = [store.answer(question) for question in questions]
        assert all(answer is not None and answer.scores is not None for answer in answers)
        counts["answers, each once"] += len(answers)
        for path in work.iterdir():
            assert os.environ["OPENAI_API_KEY"].encode() not in path.read_bytes(), path
    return counts


SHARES = {kills: 62, commands: 10, flips: 7, pairs: 7, judge: 7, reproduce: 7}
"""Of the time, in percent."""
SWEEPS = {sweep.__name__: sweep for sweep in SHARES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="for all sweeps together")
    parser.add_argument("--only", nargs="+", choices=SWEEPS, default=list(SWEEPS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    home, shares = os.getcwd(), sum(SHARES[SWEEPS[name]] for name in options.only)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            begin, place = time.monotonic(), Path(folder) / name
            place.mkdir()
            seconds = options.seconds * SHARES[SWEEPS[name]] / shares
            counts = SWEEPS[name](place, begin + seconds, random.Random(options.seed))
            os.chdir(home)
            print(f"{name} ({time.monotonic() - begin:.0f} s)", flush=True)
            for what, count in counts.items():
                print(f"    {count:>8,} {what}", flush=True)


if __name__ == "__main__":
    main()
