"""Which models of transformers can be given streams: each is equal to its plain twin or refused, and none is wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="needs gomhc[hf]")
from coverage import classes, examine, examine_all, stored_statuses, table

SOME = ["bert", "bloom", "falcon", "granite", "jamba", "kimi_linear", "llama4_text", "minimax", "opt", "phi"]
"""One for each way to build a layer."""
SOME_OTHERS = ["dinov2", "llava", "t5"]


@pytest.mark.parametrize("name", [*SOME, *SOME_OTHERS])
def test_some_of_each_kind_are_equal_as_the_table_says(name):
    causal, others = classes()
    verdict = examine((others if name in SOME_OTHERS else causal)[name])
    assert (verdict.status, verdict.reason) == ("equal", "")
    assert stored_statuses()[verdict.model_class] == verdict.status


@pytest.mark.slow
def test_every_model_is_equal_or_refused_and_none_is_wrong(tmp_path):
    causal, others = examine_all(tmp_path)
    print(table(causal, others))
    assert "wrong" not in [verdict.status for verdict in (*causal.values(), *others.values())]
    assert [verdict.status for verdict in causal.values()].count("equal") >= 120
    assert {verdict.status for verdict in others.values()} == {"equal"}
