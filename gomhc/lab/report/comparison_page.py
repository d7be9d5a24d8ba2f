"""The page of `gomhc compare`: the answer in words and as a figure of differences, then tables and curves."""

from __future__ import annotations

from gomhc.lab.comparison import comparison_exhibits as exhibits
from gomhc.lab.comparison.result import Result
from gomhc.lab.comparison.words import answer, remarks, short_names
from gomhc.lab.exhibits.exhibit import Exhibit, Table, Value
from gomhc.lab.report.page import Page, Section


def comparison_page(result: Result) -> Page:
    """Return the page of a comparison."""
    lead = (
        f"{', '.join(short_names(result).values())}: trained with {len(result['seeds'])} seeds each on "
        f"{result['tokens']:,} tokens of {result['corpus']['name']}. Methods of a seed see the same batches. They "
        "start from the same weights unless their layers have other shapes, as those of none:as-wide do. none is the "
        "plain residual network.",
    )
    tuning = exhibits.tuning_tables(result)
    sections = (
        Section(title="Loss", anchor="loss", paragraphs=remarks(result), exhibits=[exhibits.loss_table(result)]),
        Section(title="Learning curves", anchor="curves", exhibits=[exhibits.curves_plot(result)]),
        Section(
            title="Gradient norm and jitter",
            anchor="gradients",
            exhibits=[exhibits.gradient_plot(result), exhibits.gradient_table(result)],
        ),
        Section(title="Cost", anchor="cost", exhibits=[exhibits.cost_table(result)]),
        Section(title="Streams", anchor="streams", exhibits=[exhibits.streams_table(result)]),
        *([Section(title="Tuning", anchor="tuning", exhibits=tuning)] if tuning else []),
        Section(title="Seeds and settings", anchor="settings", exhibits=_settings(result)),
    )
    return Page(
        title="Residual streams compared",
        found=answer(result),
        opening=[exhibits.differences_plot(result)],
        lead=lead,
        sections=sections,
    )


def _settings(result: Result) -> list[Exhibit]:
    losses = Table(
        title="Validation loss of each seed",
        header=("method", *(f"seed {seed}" for seed in result["seeds"])),
        rows=[
            (method["method"], *(Value("diverged" if loss is None else f"{loss:.4f}") for loss in method["losses"]))
            for method in result["methods"]
        ],
    )
    recipes = [method["recipe"] for method in result["methods"]]
    same = [name for name in recipes[0] if all(recipe[name] == recipes[0][name] for recipe in recipes)]
    own = [name for name in recipes[0] if name not in same]
    shared = Table(
        title="Recipe of all methods",
        header=("option", "value"),
        rows=[(name, Value(str(recipes[0][name]))) for name in same],
    )
    different = Table(
        title="Options in which methods differ",
        header=("method", *own),
        rows=[
            (method["method"], *(Value(str(method["recipe"][name])) for name in own)) for method in result["methods"]
        ],
    )
    made = Table(
        title="Provenance",
        header=("what", "value"),
        rows=[
            ("corpus, SHA-256", result["corpus"]["fingerprint"]),
            ("commits", ", ".join(result["commits"])),
            ("sources (hash of the training code)", ", ".join(result["sources"])),
            ("versions", "; ".join(", ".join(f"{k} {v}" for k, v in one.items()) for one in result["versions"])),
            ("devices", ", ".join(result["devices"])),
            ("core hours", Value(f"{result['core_hours']:.2f}")),
        ],
        wordy=True,
    )
    return [losses, different, shared, made]
