"""Every public name has a docstring with its arguments, its shapes and an example that runs."""

from __future__ import annotations

import doctest
import enum
import inspect
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import gomhc

PUBLIC = {
    name: getattr(gomhc, name)
    for name in gomhc.__all__
    if inspect.isclass(getattr(gomhc, name)) or inspect.isfunction(getattr(gomhc, name))
} | {
    f"{module.__name__.removeprefix('gomhc.')}.{name}": getattr(module, name)
    for module, names in {
        gomhc.birkhoff: ("as_mixing", "balance"),
        gomhc.inspection: ("inspect",),
        gomhc.integrations.deepseek_v4: ("from_deepseek_v4", "to_deepseek_v4"),
        gomhc.kernels: ("orthostochastic", "read", "write"),
        gomhc.layers: ("Coefficients", "FromLogits"),
        gomhc.models: gomhc.models.__all__,
        gomhc.statistics: gomhc.statistics.__all__,
    }.items()
    for name in names
}
METHODS = {
    name: method
    for name, method in vars(gomhc.HyperConnection).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
each_name = pytest.mark.parametrize("name", PUBLIC)


def examples(name: str) -> list[doctest.DocTest]:
    names = {"gomhc": gomhc, "torch": torch, "nn": nn}
    tests = doctest.DocTestFinder().find(PUBLIC[name], f"gomhc.{name}", globs=names)
    return [test for test in tests if test.examples]


def takes_arguments(name: str) -> bool:
    cls = PUBLIC[name]
    if inspect.isclass(cls) and issubclass(cls, enum.Enum):
        return False
    return bool(inspect.signature(cls).parameters)


@each_name
def test_it_has_an_example_that_runs(name):
    tests = examples(name)
    assert any(test.name == f"gomhc.{name}" for test in tests)
    for test in tests:
        if "transformers" in test.docstring and find_spec("transformers") is None:
            pytest.skip("needs gomhc[hf]")
        report: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=report.append)
        assert not report, "".join(report)


@each_name
def test_it_says_what_it_takes(name):
    documentation = inspect.getdoc(PUBLIC[name]) or ""
    assert ("\nArgs:\n" in documentation) == takes_arguments(name)
    arguments = inspect.signature(PUBLIC[name]).parameters if takes_arguments(name) else {}
    for argument in arguments:
        assert f"\n    {argument}: " in documentation, argument


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, value in PUBLIC.items()
        if inspect.isclass(value) and issubclass(value, nn.Module | gomhc.Parametrization)
    ]
    + ["expand", "readout", "doubly_stochastic", "inspection.inspect"],
)
def test_where_tensors_go_in_their_shapes_are_said(name):
    assert "\nShape:\n" in (inspect.getdoc(PUBLIC[name]) or "")


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_a_hyper_connection_say_what_they_take(name):
    documentation = inspect.getdoc(METHODS[name]) or ""
    for argument in list(inspect.signature(METHODS[name]).parameters)[1:]:
        assert f"\n    {argument}: " in documentation, argument
    assert "Example::" in documentation or "example" in documentation
