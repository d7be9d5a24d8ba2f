"""Write the results of the studies into README.md and docs/*.md, from the files that are committed here.

    python studies/write_results.py

Each stands between `<!-- study: NAME -->` and `<!-- end of study -->`. A study without results says so in one sentence.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gomhc.lab.comparison import study
from gomhc.lab.comparison.break_even import break_even
from gomhc.lab.comparison.result import CUT_SHORT, SECONDS, TOKENS, Result, difference_between
from gomhc.lab.comparison.words import (
    agreement,
    answer,
    difference_of,
    grouped,
    methods_by_name,
    plus_minus,
    short_names,
    side,
    signed,
    steps_of,
)
from gomhc.lab.experiments.catalogue import all_experiments
from gomhc.lab.experiments.lm import TinyLanguageModel
from gomhc.lab.results.claim import Finding, Verdict
from gomhc.lab.training.recipe import AS_WIDE

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "docs"))

from places import fill  # noqa: E402

GO = "go"
NO_BREAK = "\N{NO-BREAK SPACE}"
RIVALS = "stage-3"
"""The stage with other mixings, in the same setting."""
STAGES = {
    "stage-1": "Learning rate and start",
    "stage-1b": "Half the learning rate, runs of full length",
    "stage-2": "The answer, in batches of 16",
    "stage-3": "Other mixings",
    "stage-4": "Number of streams, start",
    "stage-5": "The answer, in batches of 4",
    "stage-6": "go against the plain network of its size, twelve seeds",
    "stage-7": "Readout, scale, static coefficients, leak, rate of the coefficients",
    "stage-8": "Learning rate, in batches of 4",
    "stage-8b": "Higher learning rates of the plain network, in batches of 4",
    "stage-8c": "The plain network at its best learning rate, in batches of 4",
    "stage-9": "The answer at the plain network's best learning rate",
}
CORPORA = {"tinystories_train.txt": "TinyStories"}
"""File of a corpus -> its name."""
IN_PROGRESS = "The study is in progress; its plan is in `studies/{}/`."


def streams(studies: Path = FOLDER) -> str:
    """The stages that answer whether streams make a language model better, a table each, with all controls."""
    return _answer(studies, _verdicts, len(study.ANSWERS))


def streams_in_short(studies: Path = FOLDER) -> str:
    """The table of the last of these stages."""
    return _answer(studies, lambda answers: "", 1).replace(NO_BREAK, " ")


def _answer(studies: Path, verdict: Callable[[Sequence[Result]], str], num_shown: int) -> str:
    stages = study.stages("streams", studies)
    answers = study.answers(stages)
    if not answers:
        return f"{IN_PROGRESS.format('streams')} {_so_far(stages)}".strip()
    shown = answers[-num_shown:]
    beside = [stages[name] for name in (study.MORE_SEEDS, study.BEST_RATE) if name in stages]
    about = (
        _about([*shown, *beside]),
        _best_rate(shown, stages.get(study.BEST_RATE)),
        _break_even(shown[-1]),
        _rivals(stages.get(RIVALS), brief=num_shown == 1),
    )
    tables = [
        table
        for result in shown
        for table in (
            f"**{steps_of(result)}**" if len(shown) > 1 else "",
            _table(result, beside if result is answers[-1] else ()),
        )
    ]
    return "\n\n".join(filter(None, (verdict(answers), *tables, " ".join(filter(None, about)))))


def _verdicts(answers: Sequence[Result]) -> str:
    called = ("the plain network (`none`)", *["the plain network"] * (len(answers) - 1))
    return " ".join(map(_verdict, answers, called))


def _verdict(result: Result, reference: str) -> str:
    """Which methods are better or worse than the reference; at equal seconds, where there are runs for it."""
    told = f"In {steps_of(result)}, {_groups(result, result[TOKENS], reference)}"
    if result["equal_seconds"] != CUT_SHORT:
        told += f"; at equal seconds, {_groups(result, result[SECONDS])}"
    return f"{told}."


def _table(result: Result, beside: Sequence[Result]) -> str:
    """A row a method: its difference from the plain network, and the time of a step.

    Then a row a control: the difference of go-mHC from it; those of the stages beside take the place of others.
    """
    names = short_names(result)
    reference = next(method for method in result["methods"] if method["method"] == result["reference"])
    loss = {f"`{names[result['reference']]}`": _loss(reference)}
    columns = {"equal tokens": loss | _cells(_compared(result, TOKENS))}
    for other in beside:
        columns["equal tokens"] |= _cells(_against_reference(other))
    if result["equal_seconds"] != CUT_SHORT:
        columns["equal seconds"] = loss | _cells(_compared(result, SECONDS))
    columns["step time"] = {f"`{names[one['method']]}`": f"{one['time']:.2f}×" for one in result["methods"]}
    lines = [_row("method", *columns), f"|{'---|' * (1 + len(columns))}"]
    rows = columns["equal tokens"]
    return "\n".join([*lines, *(_row(row, *(cells.get(row, "") for cells in columns.values())) for row in rows)])


def _compared(result: Result, which: str) -> dict[str, Mapping[str, Any]]:
    """Row -> difference: of each method from the reference, then of go-mHC from each other method."""
    names, methods = short_names(result), methods_by_name(result)
    controls = [name for name, method in methods.items() if name != GO and method != result["reference"]]
    return {
        **{f"`{names[one['method']]}`": one for one in result[which]},
        **{_minus(name): difference_between(result, methods[GO], methods[name], which) for name in controls},
    }


def _against_reference(result: Result) -> dict[str, Mapping[str, Any]]:
    """Row -> difference of go-mHC from the reference."""
    names = short_names(result)
    return {_minus(names[result["reference"]]): one for one in result[TOKENS] if names[one["method"]] == GO}


def _minus(control: str) -> str:
    return f"`{GO}` minus `{control}`"


def _cells(differences: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Row -> difference with its interval, unbroken by the end of a line, and seeds with a lower loss."""
    return {
        row: "too few runs finished"
        if side(one) is None
        else f"{unbroken(plus_minus(one))} {unbroken(f'({_lower(one)})')}"
        for row, one in differences.items()
    }


def unbroken(text: str) -> str:
    """Return the text with spaces at which no line ends."""
    return text.replace(" ", NO_BREAK)


def _about(shown: Sequence[Result]) -> str:
    """What the tables show."""
    *fewer, most = sorted({len(result["seeds"]) for result in shown})
    seeds = f"{', '.join(map(str, fewer))} or {most}" if fewer else str(most)
    return (
        f"First row: validation loss, {_setting(shown[0], f'{seeds} seeds')} Others: differences paired by seed, "
        f"± half their 95 % interval, and seeds with a lower loss. {_controls(shown[0])}"
    )


def _lower(difference: Mapping[str, Any]) -> str:
    return agreement(difference).removeprefix("lower in ").removesuffix(" seeds")


def _groups(result: Result, differences: Sequence[Mapping[str, Any]], reference: str = "") -> str:
    """Which methods are better, worse or not shown to differ; the reference is named once, if at all."""
    words = {-1: "better", 1: "worse", 0: "not shown to differ", None: "not comparable"}
    prepositions = {-1: "than", 1: "than", 0: "from", None: "with"}
    names = {method: f"`{name}`" for method, name in short_names(result).items()}
    sides = [side(one) for one in differences]
    told = grouped(names, differences, words)
    if len(differences) > 1 and set(sides) == {0}:
        told = ["no method is shown to differ"]
    first = next(at for at in words if at in sides)
    named = f" {prepositions[first]} {reference}" if reference else ""
    return ", and ".join([told[0] + named, *told[1:]])


def _so_far(stages: Mapping[str, Result]) -> str:
    """What the stage with the most seeds says, in two sentences."""
    if not stages:
        return ""
    result = max(stages.values(), key=lambda stage: len(stage["seeds"]))
    return f"So far, with {len(result['seeds'])} seeds: {' '.join(answer(result))}"


def _rivals(result: Result | None, *, brief: bool) -> str:
    """How other mixings do against go-mHC, in a sentence; a brief one leaves out the names of those that tie."""
    if result is None:
        return ""
    methods = methods_by_name(result)
    rivals = [method for name, method in methods.items() if name != GO and method != result["reference"]]
    differences = [difference_between(result, rival, methods[GO]) for rival in rivals]
    tied = [rival for rival, difference in zip(rivals, differences, strict=True) if side(difference) == 0]
    if not brief or len(tied) in (0, len(rivals)):
        return f"Other mixings, {len(result['seeds'])} seeds: {_groups(result, differences, f'`{GO}`')}."
    told = _groups(result, [one for one in differences if side(one) != 0], f"`{GO}`")
    return f"Of {len(rivals)} other mixings ({len(result['seeds'])} seeds), {told}; the others are not shown to differ."


def _best_rate(shown: Sequence[Result], at_best: Result | None) -> str:
    """The learning rate of the last table, and that of its last row, in a sentence."""
    rates = {method["recipe"]["learning_rate"] for method in shown[-1]["methods"]}
    if at_best is None or len(rates) > 1:
        return ""
    where, best = f"In {shown[-1]['steps']:,} steps, the" if len(shown) > 1 else "The", at_best["methods"][0]["recipe"]
    return f"{where} learning rate is {rates.pop():g}; the last row has `none` at its best, {best['learning_rate']:g}."


def _break_even(result: Result) -> str:
    """How long a step of go-mHC may take, in a sentence; nothing without runs at equal seconds."""
    method = methods_by_name(result).get(GO)
    found = break_even(result, method) if method else None
    return (
        f"At equal seconds, `{GO}` breaks even with a step time of {found.time:.2f}× "
        f"({found.low:.2f} to {found.high:.2f})."
        if found
        else ""
    )


def streams_stages(studies: Path = FOLDER) -> str:
    """Every stage that is done, under a heading each."""
    stages = study.stages("streams", studies)
    if not stages:
        return IN_PROGRESS.format("streams")
    return "\n\n".join(f"**{STAGES.get(name, name)}** (`{name}`)\n\n{comparison(stages[name])}" for name in stages)


def comparison(result: Result) -> str:
    """Losses, differences to the plain network and times, a row a method.

    Curves that are cut short say little about equal time, so it has a column only where there are runs for it.
    """
    timed = result["equal_seconds"] != CUT_SHORT
    head = ("method", "validation loss", "difference", "lower in", "step time", "difference at equal seconds")
    rows = [_row(*head[: 5 + timed]), _row(*["---"] * (5 + timed))]
    names = short_names(result)
    for method in result["methods"]:
        tokens = difference_of(result, method["method"])
        seconds = difference_of(result, method["method"], SECONDS)
        cells = (
            f"`{names[method['method']]}`",
            _loss(method),
            plus_minus(tokens),
            agreement(tokens).removeprefix("lower in ") if tokens and side(tokens) is not None else "",
            f"{method['time']:.2f}×",
            plus_minus(seconds),
        )
        rows.append(_row(*cells[: 5 + timed]))
    setting = _setting(result, f"{len(result['seeds'])} seeds")
    caption = (
        f"{setting[0].upper()}{setting[1:]}{_learning_rate(result)} {_controls(result)} Differences from "
        f"`{names[result['reference']]}` are paired by seed, with the 95 % interval of Student's t."
    )
    return "\n".join([*rows, "", caption + (f" Equal seconds: {result['equal_seconds']}." if timed else "")])


def _loss(method: Mapping[str, Any]) -> str:
    if not method["diverged"]:
        return f"{method['loss']:.4f}"
    ended = len(method["losses"]) - len(method["diverged"])
    return f"{method['loss']:.4f}, {ended} of {len(method['losses'])} seeds" if ended else "diverged"


def _setting(result: Result, seeds: str) -> str:
    """What the losses are: tokens, text, seeds and sizes."""
    corpus = CORPORA.get(result["corpus"]["name"], result["corpus"]["name"])
    sizes = sorted(method["num_parameters"] / 1e6 for method in result["methods"])
    text = f"{result['tokens'] / 1e6:.1f} M tokens of {corpus}"
    size = " to ".join(dict.fromkeys(f"{size:.1f}" for size in (sizes[0], sizes[-1])))
    return f"nats per token after {text}, mean of {seeds}; {size} M parameters."


def _controls(result: Result) -> str:
    """What the plain network and the control of the same size are, if there is one, in a sentence."""
    wide = next((name for name in short_names(result).values() if name.startswith(AS_WIDE)), None)
    of_size = f", `{wide}` one with as many parameters as `{wide.removeprefix(AS_WIDE)}`" if wide else ""
    return f"`none` is the plain network{of_size}."


def _learning_rate(result: Result) -> str:
    """The learning rate, if all methods share it."""
    rates = {method["recipe"]["learning_rate"] for method in result["methods"]}
    return f" Learning rate {rates.pop():g}." if len(rates) == 1 else ""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def smollm2_in_short(studies: Path = FOLDER) -> str:
    """The differences of `smollm2` in a sentence, which says whether an interval lies below zero."""
    record = _smollm2(studies)
    if not record:
        return IN_PROGRESS.format("smollm2")
    arms = {name: arm for name, arm in record["summary"].items() if "difference" in arm}
    told = " and ".join(_with_interval(arm) for arm in arms.values())
    gains = any(arm["difference"] + arm["half_width_95"] < 0 for arm in arms.values())
    steps, seeds = record["settings"]["steps"], min(arm["runs"] for arm in arms.values())
    return (
        f"Fine-tuning SmolLM2-135M with four streams showed {'a' if gains else 'no'} gain: {told} with two "
        f"starts ({steps} steps, {seeds} seeds; [details](docs/hugging-face.md))."
    )


def _smollm2(studies: Path) -> dict[str, Any]:
    file = studies / "smollm2" / "record.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return record if any("difference" in arm for arm in record.get("summary", {}).values()) else {}


def smollm2(studies: Path = FOLDER) -> str:
    """Fine-tuning of SmolLM2-135M-Instruct, plain and with streams."""
    record = _smollm2(studies)
    if not record:
        return IN_PROGRESS.format("smollm2")
    rows = ["| model | held-out loss | difference from plain | seeds | cosine of streams |", "|---|---|---|---|---|"]
    for name, arm in record["summary"].items():
        if arm["held_out_loss"] is not None:
            loss, difference, cosine = f"{arm['held_out_loss']:.4f}", _with_interval(arm), _cosine(record, name)
            rows.append(f"| {name} | {loss} | {difference} | {arm['runs']} | {cosine} |")
    settings = record["settings"]
    tokens = settings["steps"] * settings["tokens_per_step"]
    caption = (
        f"Loss in nats per token on {settings['held_out_tokens']:,} held-out tokens of TinyStories after "
        f"{settings['steps']} steps on {tokens:,} tokens; {record['before']:.4f} before. Differences are paired by "
        "seed, with the 95 % interval of Student's t. Cosine of streams: mean over pairs after the last step "
        "(`gomhc inspect`)."
    )
    return "\n".join([*rows, "", caption])


def paper(studies: Path = FOLDER) -> str:
    """How many claims of the paper have which verdict."""
    own = [claim for claim in _claims(studies) if not claim["source"]]
    counts = Counter(claim["verdict"] for claim in own)
    head = " | ".join(f"{verdict}" for verdict in Verdict)
    return f"| claims | {head} |\n|{'---|' * 5}\n| {len(own)} | " + " | ".join(str(counts[v]) for v in Verdict) + " |"


def findings(studies: Path = FOLDER) -> str:
    """What opens the page of a reproduction, apart from language models: headlines with the committed numbers."""
    claims = {claim["id"]: claim for claim in _claims(studies)}
    found = {id: Finding(claim["value"], claim["here"]) for id, claim in claims.items()}
    headlines = [
        headline
        for experiment in all_experiments()
        if not isinstance(experiment, TinyLanguageModel)
        for headline in experiment.headlines
    ]
    told = [
        headline.words(found, Verdict(claims[headline.claim]["verdict"]))
        for headline in sorted(headlines, key=lambda headline: headline.rank)
    ]
    return "\n".join(f"- {words[1]}" for words in told if words is not None)


def _claims(studies: Path) -> list[dict[str, Any]]:
    return json.loads((studies / "paper" / "claims.json").read_text(encoding="utf-8"))


def _cosine(record: Mapping[str, Any], arm: str) -> str:
    """How alike the streams are after training, mean over seeds."""
    inspections = [run["inspection"] for run in record["runs"] if run["arm"] == arm and "inspection" in run]
    return f"{statistics.mean(found['streams/similarity'] for found in inspections):.4f}" if inspections else ""


def _with_interval(arm: Mapping[str, Any]) -> str:
    return f"{signed(arm['difference'])} ± {arm['half_width_95']:.4f}" if "difference" in arm else ""


RESULTS: dict[str, Callable[[], str]] = {
    "streams": streams,
    "streams-in-short": streams_in_short,
    "streams-stages": streams_stages,
    "smollm2": smollm2,
    "smollm2-in-short": smollm2_in_short,
    "paper": paper,
    "findings": findings,
}
"""Name of a place -> what it shows."""


def written(name: str) -> str:
    """Return what the place of this name shows."""
    return RESULTS[name]()


if __name__ == "__main__":
    fill("study", written)
