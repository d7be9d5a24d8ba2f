"""What the streams of a model do, measured on a text, for every hyper-connection in turn."""

from __future__ import annotations

from gomhc.inspection.inspect_model import inspect
from gomhc.inspection.inspection import Inspection

__all__ = ["Inspection", "inspect"]
