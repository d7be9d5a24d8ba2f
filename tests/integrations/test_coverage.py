"""Which models of transformers can be given streams: each is equal to its plain twin or refused, and none is wrong."""

from __future__ import annotations

import os

import pytest

transformers = pytest.importorskip("transformers", reason="needs gomhc[hf]")
from coverage import CAUSAL, OTHERS, TABLE, examine, loaded_in_another_process, model_class_of, stored_statuses, table  # noqa: E402

SOME = [
    "bert",
    "bloom",
    "falcon",
    "falcon_h1",
    "granite",
    "jamba",
    "kimi_linear",
    "llama4_text",
    "minimax",
    "opt",
    "phi",
]
"""One for each way to build a layer."""
SOME_OTHERS = ["dinov2", "llava", "t5"]


def classes():
    causal = {name: model_class_of(name) for name in CAUSAL}
    return causal, {name: getattr(transformers, class_name) for name, class_name in OTHERS.items()}


@pytest.mark.parametrize("name", [*SOME, *SOME_OTHERS])
def test_some_of_each_kind_are_equal_as_the_table_says(name):
    causal, others = classes()
    verdict = examine((others if name in SOME_OTHERS else causal)[name])
    assert (verdict.status, verdict.reason) == ("equal", "")
    assert stored_statuses()[verdict.model_class] == verdict.status


@pytest.mark.slow
def test_every_model_is_equal_or_refused_and_none_is_wrong(tmp_path):
    causal, others = classes()
    folders = {one.__name__: tmp_path / one.__name__ for one in {*causal.values(), *others.values()}}
    verdicts = {}
    for model_class in (*causal.values(), *others.values()):
        if model_class not in verdicts:
            verdicts[model_class] = examine(model_class, folders[model_class.__name__])
            print(verdicts[model_class], flush=True)
    saved = [folder for folder in folders.values() if (folder / "given.pt").exists()]
    loaded = {}
    for start in range(0, len(saved), 20):
        loaded |= loaded_in_another_process(saved[start : start + 20])
    page = table(*({name: verdicts[one] for name, one in part.items()} for part in (causal, others)))
    if os.environ.get("GOMHC_WRITE_COVERAGE"):
        TABLE.write_text(page)
    print(page)
    statuses = [verdicts[one].status for one in causal.values()]
    assert "wrong" not in [verdict.status for verdict in verdicts.values()]
    assert [name for name, same in loaded.items() if not same] == []
    assert statuses.count("equal") >= 120
    assert {verdicts[one].status for one in others.values()} == {"equal"}
