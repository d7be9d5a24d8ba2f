"""Where numbers come from: versions of what computes them, the kind of machine, and the state of the repository."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import numpy
import torch

from gomhc.version import __version__


def versions() -> dict[str, str]:
    """Versions of what the numbers are computed with."""
    return {
        "gomhc": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


@cache
def machine() -> str:
    """The kind of machine, without its name."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} and CPU"
    return f"CPU ({platform.machine()}, {platform.system()}, {os.cpu_count()} cores)"


def repository_state() -> str:
    """The commit of the sources, with `+` where files differ from it; empty where there is no repository."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(folder), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    commit = git("rev-parse", "--short=12", "HEAD")
    if commit is None or git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return ""  # installed into somebody else's repository
    return commit + ("+" if git("status", "--porcelain", "--", str(folder.parent)) else "")
