"""One-line messages for mistakes on the command line: the option, what was expected, what was given."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

from gomhc.lab.expected_errors import is_expected, words_of

DEBUG = "GOMHC_DEBUG"
"""Environment variable that enables tracebacks, unless it is empty or 0."""
TYPES = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path"}
_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"Error parsing (?P<option>--[\w-]+): .*'(?P<came>.*)'.*", "{option} must be {expected}, got '{came}'"),
    (
        r"invalid choice '(?P<came>.*)' for argument '(?P<option>.*)'\. Expected one of \((?P<expected>.*?),?\)\.",
        "{option} must be one of {expected}, got '{came}'",
    ),
    (r"Missing value for argument '(?P<option>.*?)'\..*", "{option} needs a value, got none"),
    (r"Error parsing [\w.-]+: (?P<came>.*)", "{came}"),
)


@contextmanager
def one_line() -> Iterator[None]:
    """Inside, a mistake of the user exits with one line instead of a traceback, and a warning is one line too.

    GOMHC_DEBUG=1 turns this off.
    """
    if is_debugged():
        yield
        return
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr, flush=True)
        try:
            yield
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.exit("interrupted")
        except BrokenPipeError:  # whoever read the output, as in `gomhc ... | head`, has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of it goes nowhere
            sys.exit(1)
        except Exception as error:
            if not is_expected(error):
                raise
            sys.exit(f"error: {_as_written(words_of(error))}")


def parse(command_line: Callable[[Sequence[str]], Any], arguments: Sequence[str]) -> Any:
    """Parse the arguments with tyro; a mistake exits with one line instead of tyro's box."""
    if is_debugged():
        return command_line(arguments)
    try:
        with redirect_stderr(StringIO()):
            return command_line(arguments)
    except SystemExit as stop:
        if stop.code in (None, 0):
            raise
    print(f"error: {_as_written(_summary(_box(command_line, arguments)))}", file=sys.stderr)
    sys.exit(2)


def is_debugged() -> bool:
    """Return whether the environment asks for tracebacks."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def _as_written(line: str) -> str:
    """Name the option as the user wrote it: `num_heads must be ...` becomes `--num-heads must be ...`."""
    options = {word.partition("=")[0] for word in sys.argv[1:] if word.startswith("--")}
    names = {option[2:].replace("-", "_"): option for option in options}
    first, must, rest = line.partition(" must ")
    return f"{names.get(first, first)}{must}{rest}"


def _box(command_line: Callable[[Sequence[str]], Any], arguments: Sequence[str]) -> list[list[str]]:
    """Return the sections of tyro's message, with unwrapped lines."""
    columns, text = os.environ.get("COLUMNS"), StringIO()
    os.environ["COLUMNS"] = "100000"
    try:
        with redirect_stderr(text):
            command_line(arguments)
    except SystemExit:
        pass
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    _, *lines = re.sub(r"\x1b\[[\d;]*m", "", text.getvalue()).splitlines()  # without colours and the title
    sections: list[list[str]] = [[]]
    for line in (line.strip("│ \t") for line in lines):
        if line.strip("─-╰╯"):
            sections[-1].append(line)
        elif line:  # a rule, in the characters of this terminal
            sections.append([])
    return [section for section in sections if section]


def _summary(sections: list[list[str]]) -> str:
    """Return the first section, reworded where a pattern matches, with a suggestion if there is one."""
    text, help_lines = " ".join(sections[0]), sections[1] if len(sections) > 2 else []
    for pattern, words in _PATTERNS:
        match = re.fullmatch(pattern, text)
        if match is not None:
            expected = _expected(help_lines)
            return words.format(**{"expected": expected, **_without_quotes(match.groupdict())})
    if unknown := re.match(r"Unrecognized options: ([^,]+)", text):
        text = f"unknown {'option' if unknown[1].startswith('-') else 'argument'} {unknown[1]}"
    text = f"{text[:1].lower()}{text[1:]}"
    if help_lines[:1] == ["Perhaps you meant:"]:
        return f"{text}; perhaps you meant {help_lines[1].partition(' ')[0]}"
    return "; ".join([text, *(line.lower() for line in help_lines if line.startswith("Available"))])


def _expected(help_lines: list[str]) -> str:
    """Return the type of an option's value, from a help line such as `--steps INT`."""
    kind = help_lines[1].partition(" ")[2] if len(help_lines) > 1 else ""
    parts = [TYPES.get(part, part) for part in kind.replace("{None}", "").strip("|[] .").split("|")]
    return " or ".join(parts) or "something else"


def _without_quotes(groups: dict[str, str]) -> dict[str, str]:
    return {name: text.replace("'", "") if name == "expected" else text for name, text in groups.items()}
