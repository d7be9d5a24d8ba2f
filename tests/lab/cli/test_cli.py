"""The command prints what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

import gomhc
from gomhc.lab.cli.terminal import print_table


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "gomhc", *arguments], capture_output=True, text=True, check=False)


def test_exactness_table_has_every_method_and_number_of_streams(tmp_path):
    done = run("exactness", "--seconds", "0.001", "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {(row["method"], row["num_streams"]) for row in rows} == {
        (key, d) for key in gomhc.PARAMETRIZATIONS for d in (2, 3, 4, 8)
    }
    for row in rows:
        assert set(row["marginal_errors"]) == {"0.1", "1.0", "10.0", "1000.0"}
        assert row["forward_microseconds"] > 0
        if row["promise"] == "exact":
            assert max(row["marginal_errors"].values()) < 2e-6
        assert row["method"] in done.stdout
        assert f"{row['num_parameters']:,}" in done.stdout
    # Plain lines where there is no terminal, and no line folded.
    assert f"[{len(rows)}/{len(rows)}] {list(gomhc.PARAMETRIZATIONS)[-1]} d=8" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_doctor_says_which_kernels_run_and_why():
    printed = run("doctor").stdout
    assert re.search(r"^native +(active on the CPU|not built: .*install a C\+\+ compiler)", printed, re.MULTILINE)
    assert re.search(r"^triton +(active on CUDA|interpreted|not used: )", printed, re.MULTILINE)
    assert re.search(r"^plain +the reference", printed, re.MULTILINE)


def test_version_is_printed():
    assert run("version").stdout.startswith(f"gomhc {gomhc.__version__}, torch 2.")
    assert run("--version").stdout == run("version").stdout


def test_a_table_that_does_not_fit_is_printed_cell_by_cell():
    table = Table(title="Losses", caption="in nats")
    for heading in ("method", "validation loss", "difference"):
        table.add_column(heading, no_wrap=True)
    table.add_row("go", "1.0599", "−0.0216 (−0.0300 to −0.0132)")

    def printed(width: int) -> str:
        console = Console(width=width, file=StringIO())
        print_table(console, table)
        return console.file.getvalue()

    assert printed(40).splitlines() == [
        "Losses",
        "go",
        "  validation loss: 1.0599",
        "  difference: −0.0216 (−0.0300 to ",
        "−0.0132)",
        "in nats",
    ]
    assert "│ go     │ 1.0599 " in printed(80)


@pytest.mark.parametrize("arguments", [("--help",), ("exactness", "--help")])
def test_help_says_what_it_does(arguments):
    done = run(*arguments)
    assert done.returncode == 0
    assert "how exact each mixing is" in done.stdout


def test_an_unknown_command_is_an_error():
    done = run("exactnes")
    assert done.returncode != 0
    assert "exactness" in done.stdout + done.stderr


def test_the_core_does_not_import_the_extras():
    code = "import sys, gomhc; sys.exit(bool({'tyro', 'rich', 'scipy', 'matplotlib', 'openai'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
