"""Pages of the mixings, written from the registry before the site is built: an index, and a page for each.

The prose below the equation is the class's docstring; promises, free reals, errors and costs are read from the class or
measured. notes/KEY.md has the equation in LaTeX, when to use the mixing and what to watch for. A mixing without notes
shows the equation as its docstring has it.
"""

from __future__ import annotations

import inspect
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mixing_table
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import gomhc
from gomhc.lab.bench.marginal_errors import LOGIT_SCALES, NUM_CHANNELS

NOTES = Path(__file__).parent / "notes"
STREAMS = (2, 4, 8)
NUM_MATRICES = 512


def write(folder: Path) -> None:
    """Write index.md and one file for each registered mixing into this folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "index.md").write_text(index(), encoding="utf-8")
    for key in gomhc.PARAMETRIZATIONS:
        (folder / f"{key}.md").write_text(page(key), encoding="utf-8")


def index() -> str:
    """The page that compares all of them."""
    rows = []
    for key, cls in gomhc.PARAMETRIZATIONS.items():
        mixing = cls(num_streams=4)
        cost = Cost.of(mixing)
        names = ", ".join(f"`{name}`" for name in cls.names)
        rows.append(
            f"| [`{key}`]({key}.md) | {promise(mixing)} | {mixing.num_logits} | "
            f"{'yes' if mixing.covers_polytope else 'no'} | {cost.forward} + {cost.backward} | {names} |"
        )
    pages = "\n".join(gomhc.PARAMETRIZATIONS)
    return f"""# Mixings

Choose how the streams are mixed: a *mixing* turns free reals, the *logits*, into the matrix that mixes them. Functions
and commands that take a mixing ({{py:class}}`gomhc.HyperConnection`, {{py:func}}`gomhc.upcycle`,
{{py:func}}`gomhc.doubly_stochastic`, `--mixing`) accept a value, such as `gomhc.Orthostochastic(num_streams=4)`, or
text: a key or a name from the literature, with options after a colon, such as `"go:expressivity=3"`.

Sizes and counts are for d = 4 streams. The column "operators" counts what torch runs forward and backward for a batch
of matrices; on a GPU, each operator is at least one kernel launch.

| key | promise | free reals | reaches all of the polytope | operators | names in the literature |
|---|---|---|---|---|---|
{chr(10).join(rows)}

The figure shows how exact each mixing is at different scales of its logits:

```{{drawing}} marginal_errors
Largest distance of a row or column sum from one, over 1,024 random 4 × 4 matrices in float32. Methods with solid lines
promise exactness; those with dashed lines do not.
```

**Which one?** Start with [`go`](go.md): it is exact, runs as one operator, and takes up to 256 streams with the default
s = 2. Before you compare it with anything else, compare it with [`identity`](identity.md), which does not mix at all.
Of the exact mixings that reach the whole polytope, [`transportation`](transportation.md) has the fewest free reals.

Each mixing is a frozen dataclass, `cls(num_streams=4)`, with `num_logits`, `__call__(logits)`,
`initial_logits(generator)`, `fit(matrix)`, `promise`, `covers_polytope` and `num_parameters(num_channels)`. A
{{py:class}}`gomhc.Promise` states what the tests check for every mixing: whether entries are nonnegative, whether rows
and columns sum to one, whether those sums are exact to rounding, the largest norm, and whether all singular values are
one. `gomhc.PARAMETRIZATIONS` maps keys to classes. [](../contributing.md) shows how to add a mixing.

```{{toctree}}
:maxdepth: 1
:hidden:

{pages}
```
"""


def page(key: str) -> str:
    """The page of one mixing."""
    cls = gomhc.PARAMETRIZATIONS[key]
    mixing = cls(num_streams=4)
    text = Description.of(cls)
    names = ", ".join(f"`{name}` ({written(options)})" for name, options in cls.names.items())
    named = f"\n\nNames in the literature: {names}." if names else ""
    equations, advice = notes(key) or ("\n\n".join(f"```text\n{equation}\n```" for equation in text.equations), "")
    place = f"{'gomhc' if hasattr(gomhc, cls.__name__) else cls.__module__}.{cls.__name__}"
    return f"""# {cls.__name__} (`{key}`)

{text.summary}

{equations}

{text.prose}{named}

```{{drawing}} reach {key}
Left: eigenvalues of 4 × 4 matrices that a search reached. The triangle and the square are the hulls of the third and
fourth roots of one; the dotted line bounds the region of all stochastic matrices. Right: the initial matrix, and
matrices of random logits.
```

{advice}

## Promises

{promises(mixing)}

{errors_table(mixing)}

## Size and cost

{sizes_table(cls)}

At d = 4, {Cost.of(mixing).in_words()}{time_in_words(key)}

## In code

```python
import torch

import gomhc

mixing = gomhc.PARAMETRIZATIONS["{key}"](num_streams=4)
matrix = mixing(mixing.initial_logits())  # {mixing.num_logits} free reals -> (4, 4)
layer = gomhc.HyperConnection(torch.nn.Linear(16, 16), dim=16, mixing="{key}", num_streams=4)
streams = layer(gomhc.expand(torch.randn(2, 16), 4))
assert streams.shape == (2, 4, 16)
```

```{{eval-rst}}
.. autoclass:: {place}
```
"""


def notes(key: str) -> tuple[str, str] | None:
    """The equation of a mixing, and advice under headings; None for a mixing without notes."""
    file = NOTES / f"{key}.md"
    if not file.exists():
        return None
    equation, heading, advice = file.read_text(encoding="utf-8").partition("## ")
    return equation.strip(), heading + advice.strip()


class Description(NamedTuple):
    """The docstring of a class up to its arguments, in parts."""

    summary: str
    equations: list[str]
    prose: str

    @classmethod
    def of(cls, documented: type) -> Description:
        """Indented paragraphs are equations."""
        text = (inspect.getdoc(documented) or "").partition("\nArgs:\n")[0]
        summary, *paragraphs = re.split(r"\n\s*\n", text.strip())
        equations = [inspect.cleandoc(p).replace("``", "") for p in paragraphs if p.startswith("    ")]
        prose = [p for p in paragraphs if not p.startswith("    ")]
        return cls(markdown(summary), equations, markdown("\n\n".join(prose)))


def markdown(text: str) -> str:
    """A docstring's prose as MyST: roles have braces there, and stars mean themselves."""
    text = re.sub(r":(class|func|meth|data|mod):`([^`]+)`", r"{py:\1}`\2`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def promise(mixing: gomhc.Parametrization) -> str:
    """The promise as a word."""
    return str(mixing.promise)


def promises(mixing: gomhc.Parametrization) -> str:
    """What holds for every value of the logits, in sentences."""
    said = {
        gomhc.Promise.EXACT: "**Exact**: entries are nonnegative, and rows and columns sum to one within a few n·eps, "
        "for all finite logits.",
        gomhc.Promise.APPROXIMATE: "**Approximate**: rows and columns sum to one up to an error that depends on the "
        "logits.",
        gomhc.Promise.NOTHING: "**Nothing**: the result can be any matrix.",
    }
    default = f"**{promise(mixing).capitalize()}**, for all finite logits."
    reach = "Every" if mixing.covers_polytope else "Not every"
    promised = said.get(mixing.promise, default)
    return f"{promised} {reach} doubly stochastic 4 × 4 matrix can be reached, or approached in the limit."


def errors_table(mixing: gomhc.Parametrization) -> str:
    """What is promised of sums and of the spectral norm, measured at several scales of the logits."""
    promised = mixing.promise
    measured: dict[str, Callable[[Tensor], Tensor]] = {}
    if promised.unit_rows:
        measured["largest error of a row sum"] = lambda matrices: (matrices.sum(-1) - 1).abs().max()
    if promised.unit_columns:
        measured["largest error of a column sum"] = lambda matrices: (matrices.sum(-2) - 1).abs().max()
    if promised != gomhc.Promise.EXACT and math.isfinite(promised.norm):
        measured["largest singular value minus one"] = lambda matrices: torch.linalg.svdvals(matrices).max() - 1
    if not measured:
        return ""
    rows = []
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(NUM_MATRICES, mixing.num_logits, generator=generator, dtype=dtype)
        matrices = [mixing(scale * logits).double() for scale in LOGIT_SCALES]
        for name, measure in measured.items():
            values = " | ".join(f"{measure(matrix).item():.0e}" for matrix in matrices)
            rows.append(f"| {name} | {str(dtype).removeprefix('torch.')} | {values} |")
    header = " | ".join(f"scale {scale:g}" for scale in LOGIT_SCALES)
    head = f"Measured over {NUM_MATRICES} matrices with normal logits, d = 4:\n\n| | | {header} |"
    return "\n".join((head, "|---" * (2 + len(LOGIT_SCALES)) + "|", *rows))


def sizes_table(cls: type[gomhc.Parametrization]) -> str:
    """Free reals, and parameters of a connection, at several numbers of streams."""
    sizes = []
    for d in STREAMS:
        try:
            sizes.append(cls(num_streams=d))
        except ValueError:  # a mixing may be limited to few streams, or to some numbers of them
            continue
    rows = [f"| {m.num_streams} | {m.num_logits:,} | {m.num_parameters(NUM_CHANNELS):,} |" for m in sizes]
    head = f"| streams d | free reals p | parameters of a connection of {NUM_CHANNELS} channels |"
    return "\n".join((head, "|---|---|---|", *rows))


class Cost(NamedTuple):
    """What torch does for a batch of matrices: operators it runs, and floats it keeps for backward, a matrix."""

    forward: int
    backward: int
    kept: float

    @classmethod
    def of(cls, mixing: gomhc.Parametrization) -> Cost:
        """Count them."""
        logits = torch.randn(NUM_MATRICES, mixing.num_logits, generator=torch.Generator().manual_seed(0))
        logits.requires_grad_()
        kept = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with Operators() as forward, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            matrices = mixing(logits)
        cotangent = torch.randn(matrices.shape, generator=torch.Generator().manual_seed(1))
        with Operators() as backward:
            if matrices.requires_grad:
                matrices.backward(cotangent)
        return cls(forward.count, backward.count, kept / NUM_MATRICES)

    def in_words(self) -> str:
        """As a sentence."""
        return (
            f"torch runs {self.forward:,} operator{'s' * (self.forward != 1)} forward and {self.backward:,} backward "
            f"for a batch of {NUM_MATRICES} matrices, and keeps {self.kept:,.0f} numbers per matrix for backward."
        )


def time_in_words(key: str) -> str:
    """The time of the map as a multiple of go's, if it was measured, and the command that measures it."""
    time = mixing_table.times_relative_to_go("projection").get(key)
    measured = "" if time is None or key == "go" else f" It takes {mixing_table.short(time)}× the time of `go`."
    return f"{measured} Time depends on the machine; measure it with `gomhc bench projection`."


class Operators(TorchDispatchMode):
    """Counts operators that compute a tensor; views cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += not func.is_view and torch.utils._pytree.tree_any(torch.is_tensor, result)
        return result


def written(options: Any) -> str:
    """Options of a mixing as they are written after the colon."""
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "default options"
