"""Shapes and dtypes as types: `Float[Tensor, "*batch d d"]`.

They are jaxtyping's where it is installed, and the test suite checks every signature against them. Without it they say
the same to a reader and check nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Complex, Float, Inexact, Int
else:
    try:
        from jaxtyping import Complex, Float, Inexact, Int
    except ModuleNotFoundError:

        class Float:
            """Any tensor."""

            def __class_getitem__(cls, _: object) -> Any:
                return Any

        Complex = Inexact = Int = Float

__all__ = ["Complex", "Float", "Inexact", "Int"]
