"""The findings of a comparison, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gomhc.lab.comparison.break_even import break_even
from gomhc.lab.comparison.result import SECONDS, TOKENS, Result
from gomhc.lab.exhibits.exhibit import listed
from gomhc.lab.training.recipe import AS_WIDE

CALLED = {"none": "the plain network", "none:as-wide": "the plain network of the same size"}
"""Names of methods -> what sentences call them."""
Verdicts = Mapping[int | None, str]
"""Side of zero on which an interval lies -> words for it."""


def answer(result: Result) -> list[str]:
    """Return the answer in two or three sentences: the lowest loss, how others differ, and equal training time.

    The first two are about equal tokens. A sentence for each method is in `findings`. A method that diverged with some
    seeds is not called the best, because its mean is over fewer seeds.
    """
    ended = [method for method in result["methods"] if not method["diverged"]]
    if not ended:
        return ["Every method diverged with at least one seed, so no method is called the best."]
    best = min(ended, key=lambda method: method["loss"])
    after = f"the lowest validation loss after {result['tokens']:,} tokens, {best['loss']:.4f} nats per token"
    difference = difference_of(result, best["method"])
    first = f"{_called(result, best['method'])} has {after}"
    if len(ended) < len(result["methods"]):
        first = f"Of the methods that finished with all seeds, {first}"
    if difference is not None:
        first += f"; {difference_clause(result, difference, called='it')}"
    first = f"{_capitalized(first)}."
    others = [item for item in result[TOKENS] if item is not difference]
    said = [first]
    if len(others) == 1:
        said.append(f"{_capitalized(difference_clause(result, others[0]))}.")
    elif others:
        said.append(f"Of the others, {_groups(result, others)}.")
    if result[SECONDS]:
        said.append(f"At equal training time ({result['equal_seconds']}), {_groups(result, result[SECONDS])}.")
    return said


def findings(result: Result) -> list[str]:
    """Return a sentence for each difference from the reference, then the remarks."""
    sentences = [f"At equal tokens, {difference_clause(result, difference)}." for difference in result[TOKENS]]
    sentences += [
        f"At equal training time ({result['equal_seconds']}), {difference_clause(result, difference)}."
        for difference in result[SECONDS]
    ]
    return sentences + remarks(result)


def remarks(result: Result) -> list[str]:
    """Return what no table of a comparison says: at which step time methods break even, and which runs diverged."""
    even = (break_even_sentence(result, difference["method"]) for difference in result[SECONDS])
    return list(filter(None, even)) + [
        f"{short_names(result)[method['method']]} diverged with {len(method['diverged'])} of {len(method['losses'])} "
        f"seeds: {method['diverged'][0]}."
        for method in result["methods"]
        if method["diverged"]
    ]


def short_names(result: Result) -> dict[str, str]:
    """Return a name for each method: its mixing, the options that tell it from others with it, and `num_streams`."""
    methods = [method["method"] for method in result["methods"]]
    parts = {method: (method.partition("@")[0], _options(method)) for method in methods}

    def name(method: str) -> str:
        mixing, options = parts[method]
        shared = set.intersection(*(set(other) for same, other in parts.values() if same == mixing))
        told = [option for option in options if option not in shared or option.startswith("num_streams=")]
        return ", ".join((mixing, *told))

    names = {method: name(method) for method in methods}
    return names if len(set(names.values())) == len(names) else {method: method for method in methods}


def methods_by_name(result: Result) -> dict[str, str]:
    """Return the method of each short name."""
    return {name: method for method, name in short_names(result).items()}


def side(difference: Mapping[str, Any] | None) -> int | None:
    """Return -1 or 1 if the interval lies below or above zero, 0 if zero is inside, None without an interval."""
    if difference is None or difference["mean"] is None or difference["low"] is None:
        return None
    return -1 if difference["high"] < 0 else 1 if difference["low"] > 0 else 0


def agreement(difference: Mapping[str, Any]) -> str:
    """Return `lower in 4 of 5 seeds`."""
    pairs = [value for value in difference["seeds"] if value is not None]
    return f"lower in {sum(value < 0 for value in pairs)} of {len(pairs)} seeds"


def signed(value: float) -> str:
    """Return a loss difference with its sign and four decimals, −0.0042; a smaller one with its first digit, −3e−05."""
    text = f"{value:+.4f}"
    return (text if float(text) or not value else f"{value:+.0e}").replace("-", "−")


def interval(difference: Mapping[str, Any] | None) -> str:
    """Return `−0.0042 (−0.0061 to −0.0023)`, or nothing where there is no difference."""
    if difference is None or side(difference) is None:
        return ""
    return f"{signed(difference['mean'])} ({signed(difference['low'])} to {signed(difference['high'])})"


def plus_minus(difference: Mapping[str, Any] | None) -> str:
    """Return `−0.0042 ± 0.0019`, half the width of the interval, or nothing where there is no difference."""
    if difference is None or side(difference) is None:
        return ""
    return f"{signed(difference['mean'])} ± {(difference['high'] - difference['low']) / 2:.4f}"


def signs(difference: Mapping[str, Any] | None) -> str:
    """Return the sign of the difference of each seed, 0 where there is none; · where a run diverged."""
    if difference is None:
        return ""
    return "".join("·" if value is None else "0+−"[int(np.sign(value))] for value in difference["seeds"])


def steps_of(result: Result) -> str:
    """Return `2,000 steps of 2,048 tokens`."""
    return f"{result['steps']:,} steps of {result['tokens'] // result['steps']:,} tokens"


def difference_of(result: Result, method: str, which: str = TOKENS) -> Mapping[str, Any] | None:
    """Return the difference of a method from the reference, or None for the reference itself."""
    return next((difference for difference in result[which] if difference["method"] == method), None)


def difference_clause(result: Result, difference: Mapping[str, Any], *, called: str = "") -> str:
    """Return `go is 0.0150 below the plain network (95 % interval ...)`, or that no difference is shown.

    `called` stands for the method's name.
    """
    method, reference = (_called(result, difference[name]) for name in ("method", "reference"))
    method = called or method
    where = side(difference)
    if where is None:
        return f"{method} cannot be compared with {reference}: too few pairs of runs finished"
    ends = f"95 % interval {signed(difference['low'])} to {signed(difference['high'])}; {agreement(difference)}"
    if where == 0:
        return f"no difference is shown between {method} and {reference}: {signed(difference['mean'])} ({ends})"
    size = signed(abs(difference["mean"])).removeprefix("+")
    return f"{method} is {size} {'below' if where < 0 else 'above'} {reference} ({ends})"


def brief_clause(result: Result, difference: Mapping[str, Any]) -> str:
    """Return `go is below the plain network (−0.0150 ± 0.0050)`, or that no difference is shown."""
    method, reference = (_called(result, difference[name]) for name in ("method", "reference"))
    words = {-1: "below", 1: "above", 0: "not shown to differ from", None: "not comparable with"}
    numbers = plus_minus(difference)
    return f"{method} is {words[side(difference)]} {reference}{f' ({numbers})' if numbers else ''}"


def break_even_sentence(result: Result, method: str) -> str:
    """Return how long a step of the method may take; nothing where that cannot be told."""
    found = break_even(result, method)
    if found is None:
        return ""
    reference = _called(result, result["reference"])
    return (
        f"At equal training time, {_called(result, method)} breaks even if its step takes {found.time:.2f} times as "
        f"long as that of {reference} (by interpolation; 95 % interval {found.low:.2f} to {found.high:.2f}); here, "
        f"it takes {found.measured:.2f} times as long."
    )


def grouped(names: Mapping[str, str], differences: Sequence[Mapping[str, Any]], verdicts: Verdicts) -> list[str]:
    """Return a clause for each verdict that some methods have, such as `identity and go are better`."""
    groups = {
        words: [names[one["method"]] for one in differences if side(one) == where] for where, words in verdicts.items()
    }
    return [f"{listed(group)} {'is' if len(group) == 1 else 'are'} {words}" for words, group in groups.items() if group]


def _groups(result: Result, differences: Sequence[Mapping[str, Any]]) -> str:
    """Return clauses that group the methods by their difference from the reference."""
    reference = _called(result, result["reference"])
    words = {-1: f"below {reference}", 1: f"above {reference}", 0: "not shown to differ", None: "not comparable"}
    return "; ".join(grouped(short_names(result), differences, words))


def _called(result: Result, method: str) -> str:
    name = short_names(result)[method]
    if name.startswith(AS_WIDE):
        return f"the plain network as large as {name.removeprefix(AS_WIDE)}"
    return CALLED.get(name, name)


def _capitalized(text: str) -> str:
    """Return the text with a capital letter, unless it starts with the key of a mixing."""
    return text[0].upper() + text[1:] if text.startswith(("the ", "no ")) else text


def _options(method: str) -> list[str]:
    return [option for option in method.partition("@")[2].split(",") if option]
