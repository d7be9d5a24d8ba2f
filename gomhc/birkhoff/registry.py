"""The registry of mixings: their keys, the literature's names for them, and how text is resolved to a value.

A mixing is written as a key or a name, with options after a colon: `go`, `mhc-lite`, `go:expressivity=3`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from gomhc.birkhoff.parametrization import Parametrization

PARAMETRIZATIONS: dict[str, type[Parametrization]] = {}
"""Key -> class. Tests, tables and the command line run over it, so a registered method is covered by all of them."""

DEFAULT_NUM_STREAMS = 4
"""Default number of streams of a mixing that is given as text, as in the paper's language models."""
NO_MIXING = "none"
"""Stands for a single residual stream on the command line and in recipes, so it cannot be the key of a mixing."""

Class = TypeVar("Class", bound=type)


class Setting(NamedTuple):
    """What a name from the literature stands for: a class and some of its options."""

    cls: type[Parametrization]
    options: Mapping[str, Any]


def named_settings() -> dict[str, Setting]:
    """The literature's names of all registered methods (`go-s2`, `mhc-lite`, ...)."""
    return {
        name: Setting(cls, options) for cls in PARAMETRIZATIONS.values() for name, options in _own_names(cls).items()
    }


def register(cls: Class) -> Class:
    """Add a subclass of :class:`gomhc.Parametrization` to `gomhc.PARAMETRIZATIONS`, under its `key` and its `names`.

    Everything that takes a mixing as text then accepts its key. Use it as a decorator, above `@dataclass`.

    Args:
        cls: the class. It has a `key`, implements `num_logits` and `matrix`, and can be made from `num_streams` alone.
            If the class is registered again, as when its module is reloaded, it replaces the earlier one.

    Returns:
        The class itself.

    Example::

        >>> from dataclasses import dataclass
        >>> @gomhc.register
        ... @dataclass(frozen=True, kw_only=True)
        ... class Uniform(gomhc.Parametrization):
        ...     key = "uniform"
        ...     num_logits = 0
        ...     def matrix(self, logits):
        ...         d = self.num_streams
        ...         return logits.new_full((*logits.shape[:-1], d, d), 1 / d)
        >>> connection = gomhc.HyperConnection(nn.Linear(8, 8), 8, "uniform")
        >>> del gomhc.PARAMETRIZATIONS["uniform"]
    """
    if not isinstance(cls, type) or not issubclass(cls, Parametrization):
        raise ValueError(f"expected a subclass of gomhc.Parametrization, got {cls!r}")
    if cls.__abstractmethods__:
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise ValueError(f"{cls.__name__} does not implement {missing}; define it in the class")
    _require_new_name(cls, "key", getattr(cls, "key", None))
    if not isinstance(vars(cls).get("names", {}), Mapping) or cls.key in _own_names(cls):
        raise ValueError(f"names of {cls.__name__} must map names other than its key to options, got {cls.names!r}")
    for name in _own_names(cls):
        _require_new_name(cls, "name", name)
    for options in ({}, *_own_names(cls).values()):
        _require_made(cls, options)
    PARAMETRIZATIONS[cls.key] = cls
    return cls


def as_mixing(mixing: str | Parametrization, num_streams: int | None = None) -> Parametrization:
    """Return the parametrization for a value or text.

    Args:
        mixing: a parametrization, which is returned unchanged, or text. Text is a key of `gomhc.PARAMETRIZATIONS` or a
            name from the literature, with options after a colon, as in ``"go:expressivity=3,rotation=givens"``.
            Options override those of the name.
        num_streams: number of streams; by default that of the parametrization, or 4 if `mixing` is text.

    Example::

        >>> gomhc.birkhoff.as_mixing("mhc-lite", num_streams=3).num_logits
        6
    """
    if isinstance(mixing, Parametrization):
        if num_streams is not None and mixing.num_streams != num_streams:
            raise ValueError(
                f"num_streams={num_streams}, but {mixing} mixes {mixing.num_streams} streams; "
                f"leave num_streams out, or make the mixing with num_streams={num_streams}"
            )
        return mixing
    if not isinstance(mixing, str):
        raise ValueError(f"mixing must be text such as 'go', or a value such as Orthostochastic(...), got {mixing!r}")
    name, _, options = mixing.partition(":")
    cls, defaults = _setting(name)
    chosen = _options(options)
    known = [field.name for field in fields(cls) if field.name != "num_streams"]
    if unknown := [option for option in chosen if option not in known]:
        raise ValueError(f"{name} has no option {unknown[0]}; its options are {', '.join(known)}")
    return cls(num_streams=DEFAULT_NUM_STREAMS if num_streams is None else num_streams, **{**defaults, **chosen})


def _setting(name: str) -> Setting:
    if name in PARAMETRIZATIONS:
        return Setting(PARAMETRIZATIONS[name], {})
    if name in named_settings():
        return named_settings()[name]
    raise ValueError(
        f"the mixing must be one of {', '.join(PARAMETRIZATIONS)}, or one of the names {', '.join(named_settings())}, "
        f"got {name!r}; to add your own, use gomhc.register, and for commands list its file in GOMHC_PLUGINS"
    )


def _options(text: str) -> dict[str, Any]:
    """`a=1,b=word,c=(2,3)` as a dictionary."""
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            call = ast.parse(f"f({text})", mode="eval").body
        names = [keyword.arg for keyword in call.keywords] if isinstance(call, ast.Call) else [None]
        if not isinstance(call, ast.Call) or call.args or None in names or len(set(names)) < len(names):
            raise ValueError
        return {str(keyword.arg): _option(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"options must look like expressivity=3,rotation=givens, got {text!r}") from None


def _option(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _own_names(cls: type[Parametrization]) -> Mapping[str, Mapping[str, Any]]:
    """The names that the class itself defines: those of a base class stay the base's."""
    return vars(cls).get("names", {})


def _require_new_name(cls: type[Parametrization], kind: str, name: Any) -> None:
    """Raise unless `name` can be written before a colon and no other class has it as its key or among its names."""
    if not isinstance(name, str) or not name.isprintable() or not name or any(mark in name for mark in ":,= "):
        raise ValueError(f"the {kind} of {cls.__name__} must be text without ':', ',', '=' and spaces, got {name!r}")
    if name == NO_MIXING:
        raise ValueError(f"the {kind} {name!r} of {cls.__name__} is reserved for a network without streams; rename it")
    owner = {**PARAMETRIZATIONS, **{other: cls for other, (cls, _) in named_settings().items()}}.get(name, cls)
    if (owner.__module__, owner.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"the {kind} {name!r} of {cls.__name__} is taken by {owner.__module__}.{owner.__qualname__}; choose another"
        )


def _require_made(cls: type[Parametrization], options: Mapping[str, Any]) -> None:
    """Raise unless these options make a value."""
    try:
        cls(num_streams=DEFAULT_NUM_STREAMS, **options)
    except Exception as error:
        call = ", ".join(f"{name}={value!r}" for name, value in {"num_streams": DEFAULT_NUM_STREAMS, **options}.items())
        raise ValueError(
            f"{cls.__name__}({call}) must work, but raises {type(error).__name__}: {error}; "
            f"{'correct the options in its names' if options else 'give every other field a default'}"
        ) from error
