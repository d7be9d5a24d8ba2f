"""Classes that are made at run time, and whose instances can be pickled all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Made:
    """Base class in front of another: `pickle` and `torch.save` find the class by the function that makes it."""

    made_by: ClassVar[tuple[Callable[..., type], tuple[Any, ...]]]
    """A function of a module and its arguments, which can be pickled."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new, type(self).made_by, self.__getstate__()


def _new(make: Callable[..., type], arguments: tuple[Any, ...]) -> Any:
    cls: Any = make(*arguments)
    return cls.__new__(cls)
