"""Tables and figures of a comparison, from the content of compare.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gomhc.lab.comparison.result import SECONDS, TOKENS, Result
from gomhc.lab.comparison.words import difference_of, interval, short_names, signs
from gomhc.lab.exhibits.exhibit import Cell, Plot, Table, Value
from gomhc.lab.exhibits.style import INK, SPARE, new_figure, plain_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0077BB", "#EE7733", "#009988", "#EE3377", "#6B5BD2", "#A8801C", "#33BBEE", *SPARE)
DASHES: Sequence[Any] = ("-", (0, (5, 1.5)), (0, (3, 1)), (0, (4, 1, 1, 1)), (0, (1, 1)))
STREAMS = {
    "streams/similarity": "cosine between streams",
    "streams/spread": "spread of the streams",
    "mix/distance_to_identity": "‖mix − I‖",
    "mix/entropy": "entropy of mix",
    "mix/composite_second_eigenvalue": "|λ₂| of all mixes",
    "mix/gain_forward": "largest gain",
}
"""Measure of `gomhc inspect` -> heading."""


def loss_table(result: Result) -> Table:
    """Losses and paired differences, a row a method."""
    rows: list[Sequence[Cell]] = []
    for method in result["methods"]:
        tokens = difference_of(result, method["method"])
        seconds = difference_of(result, method["method"], SECONDS)
        rows.append(
            (
                short_names(result)[method["method"]],
                Value(_loss(method)),
                Value(interval(tokens)),
                Value(signs(tokens)),
                Value(interval(seconds)),
                Value(signs(seconds)),
                Value(f"{method['time']:.2f}×"),
                method["num_parameters"],
            )
        )
    header = (
        "method",
        "loss",
        "at equal tokens",
        "seeds",
        "at equal seconds",
        "seeds",
        "time",
        "parameters",
    )
    return Table(
        header=header,
        rows=rows,
        caption=f"Validation loss in nats per token after {result['tokens']:,} tokens: mean ± standard error over "
        f"{len(result['seeds'])} seeds. Differences from {_reference(result)}, paired by seed, with the 95 % interval "
        "of Student's t; below zero is better. Seeds: the sign of each. Equal seconds: "
        f"{result['equal_seconds']}. Time: of a training step, as a multiple of the first method's.",
    )


def differences_plot(result: Result, lead: str = "") -> Plot:
    """Paired differences from the reference with their intervals, a row a method; `lead` opens the caption."""
    return Plot(
        draw=lambda: _forest(result),
        caption=f"{lead} Validation loss minus that of {_reference(result)}, in nats per token: mean and 95 % "
        f"interval over {len(result['seeds'])} seeds (strokes), at equal tokens and at equal training time "
        f"({result['equal_seconds']}). Left of zero is better.".strip(),
    )


def curves_plot(result: Result) -> Plot:
    """Validation loss over tokens, and its difference from the reference."""
    return Plot(
        draw=lambda: _curves(result),
        caption="Validation loss over steps, mean over seeds and their range (shade), and the mean difference from "
        f"{_reference(result)}.",
    )


def gradient_plot(result: Result) -> Plot:
    """Gradient norm over steps."""
    return Plot(
        draw=lambda: _gradients(result),
        caption="Gradient norm before clipping, mean over seeds and their range (shade).",
    )


def gradient_table(result: Result) -> Table:
    """Jitter and largest gradient norm."""
    names = short_names(result)
    rows = [(names[method["method"]], method["jitter"], method["largest_norm"]) for method in result["methods"]]
    return Table(
        header=("method", "mean jitter", "largest gradient norm"),
        rows=rows,
        caption="Jitter is the standard deviation over the mean of ten gradient norms in a row, after the warm-up.",
    )


def cost_table(result: Result) -> Table:
    """Time and memory of a training step."""
    rows = [
        (
            short_names(result)[method["method"]],
            method["num_parameters"],
            *(Value(f"{method[name]:,.1f}") for name in ("milliseconds", "spread", "megabytes")),
            Value(f"{method['time']:.2f}×"),
            "" if method["steps_at_equal_seconds"] is None else method["steps_at_equal_seconds"],
        )
        for method in result["methods"]
    ]
    header = ("method", "parameters", "ms a step", "spread", "MB", f"/ {_reference(result)}", "steps in equal time")
    return Table(
        header=header,
        rows=rows,
        caption="A training step (one thread on a CPU): median and interquartile range of steps of all methods "
        "in turns, and peak memory beyond weights and optimizer state.",
    )


def streams_table(result: Result) -> Table:
    """What `gomhc inspect` says of the streams at the end of training."""
    rows = [
        (short_names(result)[method["method"]], *(method["streams"].get(name) for name in STREAMS))
        for method in result["methods"]
        if method["streams"]
    ]
    return Table(
        header=("method", *STREAMS.values()),
        rows=rows,
        caption="After the last step, on a validation text, mean over seeds. Cosine and spread: of the streams that "
        "enter the last connection; the product of all mixes keeps |λ₂| of what told the streams apart.",
    )


def tuning_tables(result: Result) -> list[Table]:
    """Losses of the values that were tried, a table for each option."""
    names, tried = short_names(result), dict[str, list[tuple[str, Mapping[str, Any]]]]()
    for method in result["methods"]:
        for one in method["tuned"]:
            tried.setdefault(one["option"], []).append((names[method["method"]], one))
    return [_tuning_table(option, methods) for option, methods in tried.items()]


def _tuning_table(option: str, tuned: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    first = tuned[0][1]
    rows: list[Sequence[Cell]] = [
        (name, *(_tried(loss) for loss in one["losses"]), Value(str(one["best"]))) for name, one in tuned
    ]
    return Table(
        header=("method", *(f"{option} {value}" for value in first["values"]), "best"),
        rows=rows,
        caption=f"Validation loss of each value after {first['steps']:,} steps, with seeds that the comparison "
        f"does not use ({len(first['seeds'])}).",
    )


def _tried(loss: float | None) -> Value:
    return Value("diverged" if loss is None else f"{loss:.4f}")


def _loss(method: Mapping[str, Any]) -> str:
    if method["loss"] is None:
        return "diverged"
    error = "" if method["standard_error"] is None else f" ± {method['standard_error']:.4f}"
    ended = len(method["losses"]) - len(method["diverged"])
    of_seeds = f" ({ended} of {len(method['losses'])} seeds)" if method["diverged"] else ""
    return f"{method['loss']:.4f}{error}{of_seeds}"


def _reference(result: Result) -> str:
    return short_names(result)[result["reference"]]


def _forest(result: Result) -> Figure:
    methods, names = [difference["method"] for difference in result[TOKENS]], short_names(result)
    figure = new_figure(6.4, 1.2 + 0.4 * len(methods))
    panels = figure.subplots(1, 2, sharey=True)
    kinds = ((TOKENS, "at equal tokens", COLORS[0]), (SECONDS, "at equal training time", COLORS[1]))
    for axes, (which, title, color) in zip(panels, kinds, strict=True):
        axes.axvline(0, color=INK, linewidth=0.8)
        for place, method in enumerate(methods):
            difference = difference_of(result, method, which)
            if difference is None or difference["low"] is None:
                continue
            axes.plot((difference["low"], difference["high"]), (place, place), color=color, linewidth=2)
            axes.plot(difference["mean"], place, "o", color=color, markersize=6)
            seeds = [value for value in difference["seeds"] if value is not None]
            axes.plot(seeds, [place] * len(seeds), "|", color=INK, markersize=9, alpha=0.6)
        axes.set_title(title)
        axes.grid(axis="x", alpha=0.25, color=INK)
        axes.locator_params(axis="x", nbins=4)
    panels[0].set_yticks(range(len(methods)), [names[method].replace(", ", "\n", 1) for method in methods])
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(f"validation loss minus that of {_reference(result)}, nats per token", fontsize=10)
    return figure


def _curves(result: Result) -> Figure:
    figure = new_figure(8, 3.8)
    loss, difference = figure.subplots(1, 2)
    apart: list[float] = []
    for index, method in enumerate(result["methods"]):
        _band(loss, result, index, "validation")
        if index and (curve := _difference_curve(method, result["methods"][0])) is not None:
            difference.plot(method["validation"]["steps"], curve, **_style(result, index))
            apart += curve[2:].tolist()
    difference.axhline(0, color=INK, linewidth=0.8)
    means = [value for method in result["methods"] for value in method["validation"]["mean"][1:]]
    if means:
        loss.set_ylim(min(means) - 0.02, np.quantile(means, 0.95))
    if apart:
        difference.set_ylim(min(0, *apart) - 0.005, max(0, *apart) + 0.005)
    loss.set(xlabel="step", ylabel="validation loss, nats per token")
    difference.set(xlabel="step", ylabel=f"difference from {_reference(result)}")
    figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _difference_curve(method: Mapping[str, Any], reference: Mapping[str, Any]) -> np.ndarray | None:
    """Return the mean difference at each evaluation; None where the two were not evaluated alike or a run diverged."""
    first, second = method["validation"], reference["validation"]
    if method["diverged"] or reference["diverged"] or first["steps"] != second["steps"]:
        return None
    return np.subtract(first["mean"], second["mean"])


def _gradients(result: Result) -> Figure:
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    for index in range(len(result["methods"])):
        _band(axes, result, index, "gradient_norm")
    if any(value > 0 for method in result["methods"] for value in method["gradient_norm"]["low"]):
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
    axes.set(xlabel="step", ylabel="gradient norm")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _band(axes: Axes, result: Result, index: int, name: str) -> None:
    band, style = result["methods"][index][name], _style(result, index)
    axes.plot(band["steps"], band["mean"], **style)
    axes.fill_between(band["steps"], band["low"], band["high"], color=style["color"], alpha=0.12, linewidth=0)


def _style(result: Result, index: int) -> dict[str, Any]:
    label = short_names(result)[result["methods"][index]["method"]]
    if index == 0:
        return {"color": INK, "label": label}
    color, dash = COLORS[(index - 1) % len(COLORS)], DASHES[(index - 1) % len(DASHES)]
    return {"color": color, "linestyle": dash, "label": label}
