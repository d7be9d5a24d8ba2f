"""Checks of the health of streams, and what stands out in an inspection, in sentences with their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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


@dataclass(frozen=True)
class Check:
    """A property of healthy streams, what was measured of it, and a sentence if it is not there."""

    name: str
    value: str
    """The number, with its words."""
    limit: str
    """The values that are healthy."""
    finding: str = ""
    """What stands out; empty if the check is passed."""

    @property
    def passed(self) -> bool:
        """Whether nothing stands out."""
        return not self.finding


def findings(inspection: Inspection) -> list[str]:
    """Return a sentence for each number that stands out; an empty list if none does."""
    return [check.finding for check in checks(inspection) if not check.passed]


def verdict(inspection: Inspection) -> str:
    """Return one sentence on the health of the streams."""
    every = checks(inspection)
    passed = sum(check.passed for check in every)
    if passed < len(every):
        left = len(every) - passed
        return (
            f"{passed} of {len(every)} checks of the streams pass, and {left} {'stands' if left == 1 else 'stand'} out."
        )
    told = "; ".join(f"{check.name} ({check.value})" for check in every)
    return f"The streams are healthy, all {len(every)} checks pass: {told}."


def checks(inspection: Inspection) -> list[Check]:
    """Return what is checked, whether it stands out or not."""
    several = [_streams_differ(inspection)] if inspection.num_streams > 1 else []
    return [
        *several,
        _streams_remembered(inspection),
        _streams_mixed(inspection),
        _sums_are_one(inspection),
        _nothing_amplified(inspection, "signal", inspection.gain_forward),
        _nothing_amplified(inspection, "gradient", inspection.gain_backward),
        *(_learns(inspection, index, name) for index, name in enumerate(("reads", "writes", "mixes"))),
    ]


def _streams_differ(inspection: Inspection) -> Check:
    cosine = inspection.similarity[-1].item()
    found = f"The streams that enter the last connection are nearly one: their mean cosine is {cosine:.4f}."
    return Check(
        "streams differ",
        f"mean cosine {cosine:.4f} at the last connection",
        f"at most {COLLAPSED}",
        found if cosine > COLLAPSED else "",
    )


def _streams_remembered(inspection: Inspection) -> Check:
    last = inspection.composite_second_eigenvalue[-1].item()
    found = f"All mixes together forget which stream was which: the second eigenvalue of their product is {last:.2g}."
    return Check(
        "streams stay apart over depth",
        f"|λ₂| of all mixes {last:.2g}",
        f"at least {FORGOTTEN}",
        found if last < FORGOTTEN < inspection.second_eigenvalue.mean() else "",
    )


def _streams_mixed(inspection: Inspection) -> Check:
    distance = inspection.distance_to_identity
    still = int((distance < NOT_MIXED).sum())
    found = f"{still} of {len(inspection.names)} connections hardly mix: ‖mix − I‖ is below {NOT_MIXED}."
    return Check(
        "streams are mixed",
        f"smallest ‖mix − I‖ {distance.amin():.2g}",
        f"at least {NOT_MIXED}",
        found if still else "",
    )


def _sums_are_one(inspection: Inspection) -> Check:
    error = inspection.marginal_error.amax().item()
    found = f"The mixes are not doubly stochastic: a row or column sum is off by {error:.2g}."
    return Check(
        "mixes are doubly stochastic",
        f"worst sum off by {error:.1g}",
        f"at most {NOT_STOCHASTIC:g}",
        found if error > NOT_STOCHASTIC else "",
    )


def _nothing_amplified(inspection: Inspection, what: str, gain: Tensor) -> Check:
    largest = gain.amax().item()
    found = f"The mixes amplify a {what} up to {largest:.3g} times."
    return Check(
        f"no {what} is amplified",
        f"largest gain {largest:.4g}",
        f"at most {AMPLIFIED}",
        found if largest > AMPLIFIED else "",
    )


def _learns(inspection: Inspection, index: int, name: str) -> Check:
    norms = inspection.coefficient_gradient.norm(dim=0)
    share = (norms[index] / norms.amax()).item() if norms.amax() > 0 else 0.0
    found = (
        f"The {name} hardly learn from this text: their gradient is {share:.1g} of the largest. "
        f"This is normal for mixes right after the start, and should end after one optimizer step."
    )
    return Check(
        f"{name} learn",
        f"gradient {share:.2g} of the largest",
        f"at least {UNTAUGHT:g}",
        found if norms[index] < UNTAUGHT * norms.amax() else "",
    )
