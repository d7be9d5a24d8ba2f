"""What is written of a parametrization makes the same one again."""

from __future__ import annotations

import json

import pytest
import variants

from gomhc.birkhoff.description import describe, from_description


@variants.each(variants.ALL)
def test_a_description_survives_json_and_makes_the_same_value(parametrization):
    assert from_description(json.loads(json.dumps(describe(parametrization)))) == parametrization


def test_an_unknown_key_is_refused():
    with pytest.raises(ValueError, match=r"expected the key of a parametrization .*got 'gone'"):
        from_description({"key": "gone", "num_streams": 4})


def test_a_field_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"sinkhorn has the fields .*, got epsilon; another version of gomhc wrote"):
        from_description({"key": "sinkhorn", "num_streams": 4, "epsilon": None})
