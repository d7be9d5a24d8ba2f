"""What stage 1 has chosen, by the rules of plan.md, as assignments for run.sh: learning rates and start."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NEAR = 0.002
"""Two starts whose losses are this near each other count as equal."""
FAVOURITE = "equal-streams"
"""The start that is chosen then."""


def main() -> None:
    """Print the options of the plain network, of the identity and of all other mixings."""
    result = json.loads((Path(__file__).parent / "stage-1" / "compare.json").read_text(encoding="utf-8"))
    methods = {method["method"]: method for method in result["methods"]}
    starts = {method["recipe"]["start"]: method for method in methods.values() if method["recipe"]["mixing"] == "go"}
    best = min(starts, key=lambda start: starts[start]["loss"])
    start = FAVOURITE if starts[FAVOURITE]["loss"] - starts[best]["loss"] <= NEAR else best
    identity = next(method for method in methods.values() if method["recipe"]["mixing"] == "identity")
    print(f"plain=learning_rate={rate(methods['none'])}")
    print(f"identity=start={start},learning_rate={rate(identity)}")
    print(f"streams=start={start},learning_rate={rate(starts[start])}")


def rate(method: dict[str, Any]) -> float:
    """Return the best learning rate of a method; one at the end of its range needs a wider range."""
    tuned = method["tuned"]
    if tuned["best"] in (min(tuned["values"]), max(tuned["values"])):
        sys.exit(f"{method['method']} is best at {tuned['best']}, the end of the range of rates; extend it in run.sh")
    return tuned["best"]


if __name__ == "__main__":
    main()
