"""`from gomhc import *` works with and without transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


BLOCK = "import sys; sys.modules['transformers'] = None\n"


def test_without_transformers_the_names_that_need_it_are_left_out():
    names = python(f"{BLOCK}from gomhc import *\nprint(*sorted(globals()))").split()
    assert {"HyperConnection", "register", "swap_mixing", "SinkhornV4", "models"} <= set(names)
    assert not {"upcycle", "from_pretrained"} & set(names)


def test_without_transformers_they_say_how_to_install_it():
    code = "import gomhc\ntry:\n    gomhc.upcycle\nexcept ModuleNotFoundError as error:\n    print(error)"
    assert python(BLOCK + code) == "gomhc.upcycle needs transformers; install it with: pip install 'gomhc[hf]'\n"


def test_with_transformers_every_name_is_there():
    pytest.importorskip("transformers", reason="needs gomhc[hf]")
    names = python("from gomhc import *\nprint(*sorted(globals()))").split()
    assert {"upcycle", "from_pretrained", "swap_mixing"} <= set(names)


def test_importing_gomhc_does_not_import_transformers():
    assert python("import gomhc, sys\nprint('transformers' in sys.modules)") == "False\n"
