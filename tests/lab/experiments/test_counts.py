"""Parameters and operations are those of the paper's tables, and follow from the parts for what it does not list."""

from __future__ import annotations

import math

import pytest
from variants import ALL, each

from gomhc import Average, Identity, Kronecker, Orthostochastic, Permutations, Sinkhorn, Transportation, Unistochastic
from gomhc.lab.experiments.flops import flops

C = 384
RIVALS = {"projection", "circulant", "spectral-sphere", "orthogonal", "rows", "off-diagonal"}
"""Methods of other papers, whose operations are not counted."""


@pytest.mark.parametrize("d", [4, 8])
def test_parameters_equal_table_1(d):
    rest = 2 * d * d * C + 2 * d + 3
    assert Sinkhorn(num_streams=d).num_parameters(C) == (d * C + 1) * d**2 + rest
    for s in (1, 2, 3):
        go = Orthostochastic(num_streams=d, expressivity=s)
        assert go.num_parameters(C) == (d * C + 1) * (d * s * (d * s - 1) // 2) + rest
    assert Permutations(num_streams=d).num_parameters(C) == (d * C + 1) * math.factorial(d) + rest
    factors = int(math.log2(d))
    assert Kronecker(num_streams=d).num_parameters(C) == (d * C + 1) * 2 * factors + rest


def test_parameters_of_table_1_as_numbers():
    """The formulas of table 1 worked out by hand at C = 384."""
    expected = {
        4: {"mhc": 36_891, "go-1": 21_521, "go-2": 55_335, "lite": 49_187, "krom": 18_447},
        8: {"mhc": 245_843, "go-1": 135_215, "go-2": 417_931, "lite": 123_952_531, "krom": 67_609},
    }
    for d, counts in expected.items():
        found = {
            "mhc": Sinkhorn(num_streams=d),
            "go-1": Orthostochastic(num_streams=d, expressivity=1),
            "go-2": Orthostochastic(num_streams=d, expressivity=2),
            "lite": Permutations(num_streams=d),
            "krom": Kronecker(num_streams=d),
        }
        assert {name: method.num_parameters(C) for name, method in found.items()} == counts


def test_go_composed_with_kronecker_counts_as_the_paper_says():
    """(dC + 1) sum_k s i_k (s i_k - 1) / 2."""
    factors = (Orthostochastic(num_streams=4), Orthostochastic(num_streams=2))
    composed = Kronecker(num_streams=8, factors=factors)
    assert composed.num_logits == 2 * 4 * 7 // 2 + 2 * 2 * 3 // 2


@pytest.mark.parametrize("d", [4, 8])
def test_operations_equal_the_appendix_table(d):
    assert flops(Sinkhorn(num_streams=d, num_iterations=20), C) == 4 * C * 20 * d**2
    for s in (1, 2, 3):
        n = d * s
        go = Orthostochastic(num_streams=d, expressivity=s)
        assert flops(go, C) == pytest.approx(8 / 3 * C * n**3 + 4 * C * n**2)
    permutations = math.factorial(d)
    assert flops(Permutations(num_streams=d), C) == 3 * C * permutations + 2 * C * d**2 * permutations


@pytest.mark.parametrize(("i", "k"), [(2, 2), (2, 3), (2, 5), (3, 2), (4, 2)])
def test_operations_of_kromhc_equal_the_appendix_table(i, k):
    products = (i ** (2 * k + 2) - i**4) / (i**2 - 1)
    paper = 3 * C * k * math.factorial(i) + 2 * C * k * i**2 * math.factorial(i) + C * products
    assert flops(Kronecker(num_streams=i**k, factors=(i,) * k), C) == pytest.approx(paper)


def test_counts_of_compositions_follow_from_their_parts():
    go = Orthostochastic(num_streams=3)
    average = Average(num_streams=3, num_terms=5, term=go)
    assert average.num_logits == 5 * go.num_logits + 5
    assert flops(average, C) == 5 * flops(go, C) + C * (3 * 5 + 2 * 9 * 5)
    mixed = Kronecker(num_streams=6, factors=(go, 2))
    assert mixed.num_logits == go.num_logits + 2
    assert flops(mixed, C) == flops(go, C) + flops(Permutations(num_streams=2), C) + C * 36


def test_counts_that_are_not_in_the_paper():
    assert Transportation(num_streams=4).num_logits == 9
    assert Unistochastic(num_streams=4, expressivity=2).num_logits == 64
    assert flops(Unistochastic(num_streams=4), C) == 4 * flops(Orthostochastic(num_streams=4), C)
    assert flops(Identity(num_streams=4), C) == 0
    assert {Orthostochastic(num_streams=4, rotation=name).num_logits for name in ("cayley", "givens")} == {28}
    n = 8
    operations = {"exponential": 18 * n**3, "householder": 4 * n**2 * (n - 1), "givens": 6 * n * (n * (n - 1) // 2)}
    for name, count in operations.items():
        assert flops(Orthostochastic(num_streams=4, rotation=name), C) == C * (count + 4 * n**2)


def is_counted(parametrization):
    parts = (parametrization, *getattr(parametrization, "parts", ()))
    return not {part.key for part in parts} & RIVALS


@each(list(filter(is_counted, ALL)))
def test_operations_grow_with_the_channels(parametrization):
    assert flops(parametrization, 2 * C) == pytest.approx(2 * flops(parametrization, C))


@each([mixing for mixing in ALL if mixing.key in RIVALS])
def test_operations_of_methods_that_the_paper_does_not_count_are_refused(parametrization):
    with pytest.raises(ValueError, match="are not counted; register a count"):
        flops(parametrization, C)
