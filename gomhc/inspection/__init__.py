"""What do the streams of a model do? Measured on a text, for every hyper-connection in turn."""

from __future__ import annotations

from gomhc.inspection.inspect import inspect
from gomhc.inspection.inspection import Inspection

__all__ = ["Inspection", "inspect"]
