"""Checks of the health of streams, and what stands out in an inspection, in sentences with their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gomhc.inspection.inspection import Inspection

NEARLY_EQUAL = 0.99
"""Mean cosine between streams above which they count as nearly equal."""
NOT_MIXED = 0.01
"""Distance from the identity, which can be up to sqrt(2 d), below which a connection hardly mixes."""
FORGOTTEN = 0.01
"""Second eigenvalue of the product of all mixes below which the differences between streams are averaged away."""
NOT_STOCHASTIC = 1e-3
"""Error of a row or column sum above which mix is not doubly stochastic."""
AMPLIFIED = 1.1
"""Gain above which depth amplifies a signal or a gradient."""
UNTAUGHT = 1e-4
"""Gradient of a kind of coefficients, as a share of the largest kind's, below which they hardly learn."""


@dataclass(frozen=True)
class Check:
    """A property of healthy streams, the number that was measured for it, and a sentence if the check fails."""

    name: str
    value: str
    """The measured number, in words."""
    limit: str
    """The range of healthy values."""
    finding: str = ""
    """What is wrong; empty if the check passes."""

    @property
    def passed(self) -> bool:
        """Whether the check passes."""
        return not self.finding


def findings(inspection: Inspection) -> list[str]:
    """Return a sentence for each check that fails."""
    return [check.finding for check in checks(inspection) if not check.passed]


def verdict(inspection: Inspection) -> str:
    """Return one sentence on the health of the streams."""
    every = checks(inspection)
    passed = sum(check.passed for check in every)
    if passed < len(every):
        left = len(every) - passed
        return f"{passed} of {len(every)} checks of the streams pass, and {left} {'fails' if left == 1 else 'fail'}."
    told = "; ".join(f"{check.name} ({check.value})" for check in every)
    return f"The streams are healthy. All {len(every)} checks pass: {told}."


def checks(inspection: Inspection) -> list[Check]:
    """Return all checks, whether they pass or not. One that is measured as NaN fails."""
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
    found = (
        f"The streams are nearly equal: their mean cosine at the last connection is {cosine:.4f}. With the start "
        "equal-streams, they are equal at first and need steps to separate."
    )
    return Check(
        "streams differ",
        f"mean cosine {cosine:.4f} at the last connection",
        f"at most {NEARLY_EQUAL}",
        "" if cosine <= NEARLY_EQUAL else found,
    )


def _streams_remembered(inspection: Inspection) -> Check:
    last = inspection.composite_second_eigenvalue[-1].item()
    found = (
        f"The mixes together average out the differences between streams: the second eigenvalue of their product is "
        f"{last:.2g}."
    )
    return Check(
        "streams stay apart over depth",
        f"|λ₂| of all mixes {last:.2g}",
        f"at least {FORGOTTEN}",
        "" if last >= FORGOTTEN or inspection.second_eigenvalue.mean() <= FORGOTTEN else found,
    )


def _streams_mixed(inspection: Inspection) -> Check:
    distance = inspection.distance_to_identity
    still = int((~(distance >= NOT_MIXED)).sum())
    found = f"{still} of {len(inspection.names)} connections hardly mix the streams: ‖mix − I‖ is below {NOT_MIXED}."
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
        "" if error <= NOT_STOCHASTIC else found,
    )


def _nothing_amplified(inspection: Inspection, what: str, gain: Tensor) -> Check:
    largest = gain.amax().item()
    found = f"The mixes amplify a {what} by a factor of up to {largest:.3g}."
    return Check(
        f"no {what} is amplified",
        f"largest gain {largest:.4g}",
        f"at most {AMPLIFIED}",
        "" if largest <= AMPLIFIED else found,
    )


def _learns(inspection: Inspection, index: int, name: str) -> Check:
    norms = inspection.coefficient_gradient.norm(dim=0)
    share = (norms[index] / norms.amax()).item() if norms.amax() != 0 else 0.0
    found = (
        f"The {name} hardly learn from this text: their gradient is {share:.1g} of the largest kind's. "
        f"This is normal for mixes before training, and should end after one optimizer step."
    )
    return Check(
        f"{name} learn",
        f"gradient {share:.2g} of the largest",
        f"at least {UNTAUGHT:g}",
        "" if share >= UNTAUGHT else found,
    )
