"""Shapes and dtypes as types: `Float[Tensor, "*batch d d"]`.

They are jaxtyping's where it is installed, and the test suite checks every signature by them. Annotations are never
evaluated otherwise, so without jaxtyping the names need no more than to exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Complex, Float, Inexact, Int
else:
    try:
        from jaxtyping import Complex, Float, Inexact, Int
    except ModuleNotFoundError:
        Complex = Float = Inexact = Int = None

__all__ = ["Complex", "Float", "Inexact", "Int"]
