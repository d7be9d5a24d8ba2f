"""One registry resolves every name of a mixing, and takes methods from outside the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import gomhc
from gomhc import Average, Kronecker, Orthostochastic, Parametrization, Sinkhorn
from gomhc.birkhoff import as_mixing
from gomhc.birkhoff.registry import named_settings


@pytest.fixture(autouse=True)
def registry():
    """A registry that forgets what a test adds to it."""
    before = dict(gomhc.PARAMETRIZATIONS)
    yield
    gomhc.PARAMETRIZATIONS.clear()
    gomhc.PARAMETRIZATIONS.update(before)


def uniform(**attributes):
    """A new method: every entry is 1/d."""

    def matrix(self, logits):
        return logits.new_full((*logits.shape[:-1], self.num_streams, self.num_streams), 1 / self.num_streams)

    body = {"key": "uniform", "num_logits": 0, "matrix": matrix, **attributes}
    return dataclass(frozen=True, kw_only=True)(type("Uniform", (Parametrization,), body))


class TestText:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("go", Orthostochastic(num_streams=4)),
            ("go:expressivity=3,rotation=givens", Orthostochastic(num_streams=4, expressivity=3, rotation="givens")),
            ("go-s1", Orthostochastic(num_streams=4, expressivity=1)),
            ("go-square-s3", Orthostochastic(num_streams=4, expressivity=3, layout="square")),
            ("go-square-s3:expressivity=1", Orthostochastic(num_streams=4, expressivity=1, layout="square")),
            ("mhc:num_iterations=3", Sinkhorn(num_streams=4, num_iterations=3)),
            ("kronecker:factors=(4,)", Kronecker(num_streams=4, factors=(4,))),
            (
                "average:num_terms=3,term=kronecker",
                Average(num_streams=4, num_terms=3, term=Kronecker(num_streams=4)),
            ),
        ],
    )
    def test_means_a_value_of_four_streams(self, text, value):
        assert as_mixing(text) == value

    def test_means_a_value_of_as_many_streams_as_are_asked_for(self):
        assert as_mixing("mhc-lite", 3) == gomhc.Permutations(num_streams=3)

    def test_every_key_and_every_name_is_known(self):
        for name in (*gomhc.PARAMETRIZATIONS, *named_settings()):
            assert as_mixing(name).num_streams == 4

    @pytest.mark.unchecked
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("magic", r"must be one of go, .* names go-s1, .* got 'magic'; to add your own, use gomhc\.register"),
            ("", "got ''"),
            ("go:depth=3", "go has no option depth; its options are initial_leak, expressivity, rotation, layout"),
            ("go-s2:num_streams=3", "go-s2 has no option num_streams; its options are initial_leak"),
            ("go:3", "options must look like expressivity=3,rotation=givens, got '3'"),
            ("average:term=3", "term must be a parametrization or its key, such as 'go', got 3"),
            ("average:term=magic", "must be one of go, .*got 'magic'"),
        ],
    )
    def test_with_a_mistake_is_refused(self, text, message):
        with pytest.raises(ValueError, match=message):
            as_mixing(text)


class TestValue:
    def test_is_returned_as_it_is(self):
        value = Sinkhorn(num_streams=3)
        assert as_mixing(value) is value
        assert as_mixing(value, 3) is value

    def test_of_another_number_of_streams_is_refused(self):
        with pytest.raises(ValueError, match=r"num_streams=4, but Sinkhorn\(.* mixes 3 streams; leave num_streams out"):
            as_mixing(Sinkhorn(num_streams=3), 4)

    @pytest.mark.unchecked
    @pytest.mark.parametrize("mixing", [None, 4, Sinkhorn])
    def test_of_another_type_is_refused(self, mixing):
        with pytest.raises(ValueError, match="mixing must be text such as 'go', or a value"):
            as_mixing(mixing)


class TestRegister:
    def test_returns_the_class_and_makes_it_known_under_its_key_and_names(self):
        cls = uniform(names={"flat": {"initial_leak": 0.2}})
        assert gomhc.register(cls) is cls
        assert gomhc.PARAMETRIZATIONS["uniform"] is cls
        assert as_mixing("uniform", 3) == cls(num_streams=3)
        assert as_mixing("flat") == cls(num_streams=4, initial_leak=0.2)

    def test_the_new_method_mixes_streams(self):
        gomhc.register(uniform())
        torch.testing.assert_close(as_mixing("uniform", 2)(torch.empty(0)), torch.full((2, 2), 0.5))

    def test_a_class_that_is_made_again_replaces_its_predecessor(self):
        gomhc.register(uniform(names={"flat": {}}))
        again = gomhc.register(uniform(names={"even": {}}))
        assert gomhc.PARAMETRIZATIONS["uniform"] is again
        assert "even" in named_settings()
        assert "flat" not in named_settings()

    def test_names_of_a_base_class_stay_the_bases(self):
        @gomhc.register
        @dataclass(frozen=True, kw_only=True)
        class Steeper(Sinkhorn):
            key: ClassVar[str] = "steeper"

        assert type(as_mixing("mhc")) is Sinkhorn
        assert type(as_mixing("steeper")) is Steeper

    @pytest.mark.parametrize("key", [None, "", 3, "a:b", "a,b", "a=b", "a b", "a\n"])
    def test_a_key_that_cannot_be_written_is_refused(self, key):
        with pytest.raises(ValueError, match="the key of Uniform must be text without ':', ',', '=' and spaces, got"):
            gomhc.register(uniform(key=key))

    @pytest.mark.parametrize("key", ["go", "mhc-lite"])
    def test_a_key_or_name_that_is_taken_is_refused(self, key):
        with pytest.raises(ValueError, match=rf"the key '{key}' of Uniform is taken by gomhc\.birkhoff"):
            gomhc.register(uniform(key=key))
        with pytest.raises(ValueError, match=rf"the name '{key}' of Uniform is taken by gomhc\.birkhoff"):
            gomhc.register(uniform(names={key: {}}))

    def test_the_word_for_no_mixing_is_refused(self):
        with pytest.raises(ValueError, match="the key 'none' of Uniform is reserved for a network without streams"):
            gomhc.register(uniform(key="none"))

    @pytest.mark.unchecked
    @pytest.mark.parametrize("cls", [int, 3, Sinkhorn(num_streams=4)])
    def test_what_is_no_parametrization_is_refused(self, cls):
        with pytest.raises(ValueError, match=r"expected a subclass of gomhc\.Parametrization, got"):
            gomhc.register(cls)

    def test_an_abstract_class_is_refused(self):
        class Unfinished(Parametrization):
            key = "unfinished"

        with pytest.raises(ValueError, match="Unfinished does not implement matrix, num_logits"):
            gomhc.register(Unfinished)

    def test_a_field_without_default_is_refused(self):
        with pytest.raises(ValueError, match=r"Uniform\(num_streams=4\) must work, but raises TypeError.*depth"):
            gomhc.register(uniform(__annotations__={"depth": "int"}))

    def test_a_name_of_options_that_do_not_work_is_refused(self):
        with pytest.raises(ValueError, match=r"Uniform\(num_streams=4, depth=3\) must work, but raises TypeError"):
            gomhc.register(uniform(names={"deep": {"depth": 3}}))

    @pytest.mark.parametrize("names", [("x", "y"), {"uniform": {}}])
    def test_names_that_are_no_table_or_repeat_the_key_are_refused(self, names):
        with pytest.raises(ValueError, match="must map names other than its key to options, got"):
            gomhc.register(uniform(names=names))

    def test_nothing_is_registered_when_refused(self):
        before = dict(gomhc.PARAMETRIZATIONS)
        with pytest.raises(ValueError, match="must work"):
            gomhc.register(uniform(names={"deep": {"depth": 3}}))
        assert before == gomhc.PARAMETRIZATIONS
