"""Print what stage 1 has chosen, by the rules of plan.md, as assignments for run.sh: learning rates and start."""

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
    print(f"plain={rates(methods['none'])}")
    print(f"identity=start={start},{rates(identity)}")
    print(f"streams=start={start},{rates(starts[start])}")


def rates(method: dict[str, Any]) -> str:
    """Return the best rates of a method as options; one at the end of its range needs a wider range."""
    for tried in method["tuned"]:
        numbers = [value for value in tried["values"] if value is not None]
        if tried["best"] in (min(numbers), max(numbers)):
            sys.exit(f"{method['method']} is best at {tried['option']}={tried['best']}, the end of its range in run.sh")
    return ",".join(f"{tried['option']}={tried['best']}" for tried in method["tuned"])


if __name__ == "__main__":
    main()
