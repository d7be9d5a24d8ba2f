"""The command line: one file per command, and what they print to a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

try:
    import platformdirs  # noqa: F401
    import rich  # noqa: F401
    import safetensors  # noqa: F401
    import tyro
except ModuleNotFoundError as error:
    sys.exit(f"the gomhc command needs {error.name}; install it with: pip install 'gomhc[cli]'")

from gomhc.lab import plugins
from gomhc.lab.cli import bench, doctor, exactness, inspect, judge, mistakes, reproduce, sample, train, version


def _deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Return the command with its call deferred, so that tyro does not report its errors as wrong options."""

    @wraps(command)
    def parsed(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return partial(command, *args, **kwargs)

    return parsed


app = tyro.extras.SubcommandApp()
for command in (
    version.version,
    doctor.doctor,
    exactness.exactness,
    bench.bench,
    reproduce.reproduce,
    judge.judge,
    train.train,
    sample.sample,
    inspect.inspect,
):
    app.command(_deferred(command))


def main() -> None:
    """Run the command line; Ctrl-C and mistakes of the user end it with one line instead of a traceback."""
    with mistakes.one_line():
        plugins.load()
        mistakes.parse(_parse, train.with_recipe(sys.argv[1:]))()


def _parse(arguments: Sequence[str]) -> Callable[[], None]:
    return app.cli(
        prog="gomhc",
        description="Exact doubly stochastic maps for multi-stream residual networks. Environment: GOMHC_PLUGINS lists "
        "Python files with mixings and experiments of your own; GOMHC_DEBUG=1 shows tracebacks.",
        args=arguments,
    )
