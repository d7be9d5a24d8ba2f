"""The command line: parse, call, print. One file a command."""

from __future__ import annotations

import sys

try:
    import rich  # noqa: F401
    import tyro
except ModuleNotFoundError as error:
    sys.exit(f"the gomhc command needs {error.name}; install it with: pip install 'gomhc[cli]'")

from gomhc.cli import bench, doctor, exactness, inspect, judge, reproduce, sample, train, version
from gomhc.training import NotFinite

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
    app.command(command)


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, and a mistake of the user is one line."""
    try:
        app.cli(
            prog="gomhc",
            description="Exact doubly stochastic maps for multi-stream residual networks.",
            args=train.with_recipe(sys.argv[1:]),
        )
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except (ValueError, OSError, NotFinite) as error:
        sys.exit(f"error: {error}")
