"""What stands out in an inspection, as plain sentences with the numbers that they rest on."""

from __future__ import annotations

from collections.abc import Iterator

from gomhc.inspection.inspection import Inspection

COLLAPSED = 0.99
"""Mean cosine between streams above which they are nearly one."""
NOT_MIXED = 0.01
"""Distance from the identity, of a possible sqrt(2 d), below which nothing is mixed to speak of."""
FORGOTTEN = 0.01
"""Second eigenvalue of the product of all mixes below which the last layers cannot tell streams apart by it."""
NOT_STOCHASTIC = 1e-3
"""Error of a row or column sum above which mix is not doubly stochastic."""
AMPLIFIED = 1.1
"""Gain above which depth amplifies a signal or a gradient."""
UNTAUGHT = 1e-4
"""Gradient of a kind of coefficients, as a share of the largest kind's, below which they hardly learn."""


def findings(inspection: Inspection) -> list[str]:
    """Return a sentence for each number that stands out; an empty list if none does."""
    return [*_of_streams(inspection), *_of_mixes(inspection), *_of_gradients(inspection)]


def _of_streams(inspection: Inspection) -> Iterator[str]:
    similarity = inspection.similarity
    if inspection.num_streams > 1 and similarity[-1] > COLLAPSED:
        yield f"The streams that enter the last connection are nearly one: their mean cosine is {similarity[-1]:.4f}."
    if inspection.composite_second_eigenvalue[-1] < FORGOTTEN < inspection.second_eigenvalue.mean():
        last = inspection.composite_second_eigenvalue[-1]
        yield f"All mixes together forget which stream was which: the second eigenvalue of their product is {last:.2g}."


def _of_mixes(inspection: Inspection) -> Iterator[str]:
    still = int((inspection.distance_to_identity < NOT_MIXED).sum())
    if still:
        yield f"{still} of {len(inspection.names)} connections hardly mix: ‖mix − I‖ is below {NOT_MIXED}."
    error = inspection.marginal_error.amax().item()
    if error > NOT_STOCHASTIC:
        yield f"The mixes are not doubly stochastic: a row or column sum is off by {error:.2g}."
    for way, gain in (("signal", inspection.gain_forward), ("gradient", inspection.gain_backward)):
        if gain.amax() > AMPLIFIED:
            yield f"The mixes amplify a {way} up to {gain.amax():.3g} times."


def _of_gradients(inspection: Inspection) -> Iterator[str]:
    norms = inspection.coefficient_gradient.norm(dim=0)
    for name, norm in zip(("reads", "writes", "mixes"), norms, strict=True):
        if norm < UNTAUGHT * norms.amax():
            share = (norm / norms.amax()).item()
            yield (
                f"The {name} hardly learn from this text: their gradient is {share:.1g} of the largest. "
                f"This is normal for mixes right after the start, and should end after one optimizer step."
            )
