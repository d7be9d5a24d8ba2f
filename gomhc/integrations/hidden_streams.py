"""Hidden states that are several streams, in the eyes of a layer's own code.

The code of a layer (see `layer_code`) runs with such a value in place of its hidden states. What is called with it
reads the streams, through a hyper-connection; what is added to it is written to them, through the same one. A sum of
several branches that saw the same streams is written at once. d = num_streams, c = channels
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from gomhc.integrations.layer_code import rewritten
from gomhc.layers import HyperConnection, Pending, State, readout, written


class NotResidualError(ValueError):
    """The code of a layer does something with its hidden states that streams cannot follow."""


class LayerCall:
    """One call of a layer: where its code stands, and the connections by the places that read.

    Args:
        connections: the layer's connections by name.
        names: the name of the connection by the place in the code that reads.
        depth: into how many levels of submodules the hidden states are followed.
        norms_are_passed: whether norms stand on the path of the residual (post-norm), not before branches.
    """

    def __init__(self, connections: Any, names: Mapping[str, str], depth: int, norms_are_passed: bool) -> None:
        self.connections = connections
        self.names = names
        self.depth = depth
        self.norms_are_passed = norms_are_passed
        self.path = ""
        self.level = 0
        self.written: list[HyperConnection] = []

    def inside(self, place: str, levels: int, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function whose code takes the hidden states themselves."""
        path = self.path
        self.path, self.level = f"{path}{place}/", self.level + levels
        result = _code(function)(*args, **kwargs)
        self.path, self.level = path, self.level - levels
        return result

    def connection(self, place: str, streams: Tensor) -> HyperConnection:
        """The connection whose branch begins at this place of the code."""
        if place not in self.names:
            raise ValueError(
                f"this layer reads its hidden states at {place!r}, which it did not when it was given streams; "
                f"those places have connections: {', '.join(self.names)}"
            )
        connection: HyperConnection = self.connections[self.names[place]]
        return connection


class Point:
    """A point on the path of the residual: the streams there, and what a connection has read of them.

    Args:
        run: the call of the layer.
        streams: the streams there; what is pending is written when they are read or asked for.
    """

    def __init__(self, run: LayerCall, streams: Tensor | Pending) -> None:
        self.run = run
        self.held = streams
        self.connection: HyperConnection | None = None
        self.branch_input: Tensor | None = None
        self.state: State | None = None

    @property
    def streams(self) -> Tensor:
        """The streams, all written."""
        self.held = written(self.held)
        return self.held

    @property
    def like(self) -> Tensor:
        """A tensor of the shape, dtype and device of the streams."""
        return self.held.state.streams if isinstance(self.held, Pending) else self.held

    def read(self, place: str) -> Tensor:
        """What the branch that begins at this place sees: the same for all that begin here."""
        if self.branch_input is None:
            self.connection = self.run.connection(self.run.path + place, self.like)
            self.branch_input, self.state = self.connection.read(self.held)
            self.held = self.state.streams
        return self.branch_input

    def written(self, output: Tensor) -> Point:
        """The point behind the branch."""
        if self.state is None or self.connection is None:  # nothing has been read: all streams get the same
            return Point(self.run, self.streams + output.unsqueeze(-2))
        self.run.written.append(self.connection)
        return Point(self.run, Pending(self.state, output))

    def changed(self, change: Callable[[Tensor, bool], Tensor]) -> Point:
        """The same point after a linear change of the streams, which gets them (True) or one of them (False)."""
        point = Point(self.run, change(self.streams, True))
        if self.state is not None and self.branch_input is not None:
            point.connection, point.branch_input = self.connection, change(self.branch_input, False)
            point.state = State(point.streams, self.state.write, self.state.mix)
        return point


class HiddenStreams:
    """Streams (*batch, d, c) that look like hidden states (*batch, c).

    Args:
        point: where the streams were last known.
        pending: what branches have added since then, in the point's shape.
        new_shape: the shape in which the code sees them, where it is not the point's.
        new_dtype: the dtype in which the code sees them, where it is not the point's.
    """

    def __init__(
        self,
        point: Point,
        pending: Tensor | None = None,
        new_shape: torch.Size | None = None,
        new_dtype: torch.dtype | None = None,
    ) -> None:
        self.point = point
        self.pending = pending
        self.new_shape = new_shape
        self.new_dtype = new_dtype
        self.after: HiddenStreams | None = None

    def settled(self) -> HiddenStreams:
        """The same after everything that is pending has been written."""
        if self.pending is None:
            return self
        if self.after is None:
            point, output = self.point, self.pending
            dtype = torch.promote_types(self.dtype, output.dtype)
            if dtype != point.like.dtype:
                point = point.changed(lambda x, _: x.to(dtype))
            self.after = HiddenStreams(point.written(output.to(dtype)), new_shape=self.new_shape)
        return self.after

    # What the code does with hidden states
    # ------------------------------------------------------------------------------------------------------------------

    def read(self, place: str) -> Tensor:
        """What a branch that begins at this place of the code is to see."""
        now = self.settled()
        seen = now.point.read(place)
        seen = seen if now.new_dtype is None else seen.to(now.new_dtype)
        return seen if now.new_shape is None else seen.reshape(now.new_shape)

    def plus(self, addend: Any) -> HiddenStreams:
        """What a branch has made is pending; numbers and vectors are added to every stream."""
        if isinstance(addend, HiddenStreams):
            raise NotResidualError("it adds hidden states to hidden states")
        if self.after is not None:  # another branch has seen what was pending
            return self.after.plus(addend)
        if not isinstance(addend, Tensor) or addend.ndim <= 1:
            now = self.settled()
            return now._at(now.point.changed(lambda x, _: x + addend))
        if addend.shape != self.shape:
            addend = addend.expand(self.shape)
        if self.new_shape is not None:
            addend = addend.reshape(_token_shape(self.point))
        pending = addend if self.pending is None else self.pending + addend
        return HiddenStreams(self.point, pending, self.new_shape, self.new_dtype)

    def times(self, factor: Any) -> HiddenStreams:
        """Every stream is multiplied."""
        if isinstance(factor, HiddenStreams):
            raise NotResidualError("it multiplies hidden states by hidden states")
        now = self.settled()
        if not isinstance(factor, Tensor) or factor.ndim <= 1:
            return now._at(now.point.changed(lambda x, _: x * factor))
        if now.new_shape is not None:
            raise NotResidualError("it multiplies hidden states of another shape")
        return now._at(now.point.changed(lambda x, is_streams: x * (factor.unsqueeze(-2) if is_streams else factor)))

    def passed_through(self, module: Any) -> HiddenStreams:
        r"""The streams after x <- N(x) on the path of the residual: N acts on their mean, and all move with it.

            x_i <- x_i + (N(m) - m),    m the mean over streams
        """  # fmt: skip
        streams = self.finished()
        mean = readout(streams)
        return HiddenStreams(Point(self.point.run, streams + (module(mean) - mean).unsqueeze(-2)))

    def finished(self) -> Tensor:
        """The streams, all written, in the shape and dtype that the code has given them."""
        now = self.settled()
        streams = now.point.streams if now.new_dtype is None else now.point.streams.to(now.new_dtype)
        return streams if now.new_shape is None else streams.reshape(*now.new_shape[:-1], *streams.shape[-2:])

    def _at(self, point: Point) -> HiddenStreams:
        return HiddenStreams(point, None, self.new_shape, self.new_dtype)

    # The tensor that they look like
    # ------------------------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        return _token_shape(self.point) if self.new_shape is None else self.new_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.point.like.dtype if self.new_dtype is None else self.new_dtype

    @property
    def device(self) -> torch.device:
        return self.point.like.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def view(self, *shape: Any) -> HiddenStreams:
        return self.reshape(*shape)

    def reshape(self, *shape: Any) -> HiddenStreams:
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        new_shape = torch.empty(self.shape, device="meta").reshape(wanted).shape
        if new_shape[-1] != self.shape[-1]:
            raise NotResidualError("it takes its hidden states apart")
        now = self.settled()
        return HiddenStreams(now.point, None, new_shape, now.new_dtype)

    def to(self, *args: Any, **kwargs: Any) -> HiddenStreams:
        now = self.settled()
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.dtype) and value != now.dtype:
                return HiddenStreams(now.point, None, now.new_shape, value)
        return now

    def float(self) -> HiddenStreams:
        return self.to(torch.float32)

    def contiguous(self) -> HiddenStreams:
        return self

    def __getattr__(self, name: str) -> Any:
        raise NotResidualError(f"it uses hidden_states.{name}")

    def __getitem__(self, index: Any) -> Any:
        raise NotResidualError("it takes a part of its hidden states")


class Handlers:
    """What the calls and operations of a layer's code become."""

    @staticmethod
    def call(place: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        run = _run_of(args, kwargs)
        if run is None:
            return function(*args, **kwargs)
        if isinstance(function, nn.Module):
            is_alone = len(args) + len(kwargs) == 1
            if run.level < run.depth and _can_be_followed(function, is_alone):
                return run.inside(place, 1, type(function).forward, function, *args, **kwargs)
            if run.norms_are_passed and is_alone and is_norm(function):
                (streams,) = (*args, *kwargs.values())
                return streams.passed_through(function)
        elif isinstance(function, MethodType) and isinstance(function.__self__, nn.Module):
            return run.inside(place, 0, function.__func__, function.__self__, *args, **kwargs)
        elif isinstance(function, FunctionType) and not function.__module__.startswith("torch."):
            return run.inside(place, 0, function, *args, **kwargs)
        elif function.__module__ == "builtins":  # isinstance, hasattr
            return function(*args, **kwargs)
        args = tuple(_read(value, place) for value in args)
        return function(*args, **{name: _read(value, place) for name, value in kwargs.items()})

    @staticmethod
    def add(a: Any, b: Any, /) -> Any:
        if isinstance(a, HiddenStreams):
            return a.plus(b)
        return b.plus(a) if isinstance(b, HiddenStreams) else a + b

    @staticmethod
    def subtract(a: Any, b: Any, /) -> Any:
        if isinstance(b, HiddenStreams):
            raise NotResidualError("it subtracts its hidden states")
        return a.plus(-b) if isinstance(a, HiddenStreams) else a - b

    @staticmethod
    def multiply(a: Any, b: Any, /) -> Any:
        if isinstance(a, HiddenStreams):
            return a.times(b)
        return b.times(a) if isinstance(b, HiddenStreams) else a * b

    @staticmethod
    def divide(a: Any, b: Any, /) -> Any:
        if isinstance(b, HiddenStreams):
            raise NotResidualError("it divides by its hidden states")
        return a.times(1 / b) if isinstance(a, HiddenStreams) else a / b


def _read(value: Any, place: str) -> Any:
    if isinstance(value, HiddenStreams):
        return value.read(place)
    if isinstance(value, tuple | list):
        return type(value)(_read(element, place) for element in value)
    return value


def _run_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> LayerCall | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, HiddenStreams):
            return value.point.run
        if type(value) in (tuple, list):
            for element in value:
                if isinstance(element, HiddenStreams):
                    return element.point.run
    return None


def _token_shape(point: Point) -> torch.Size:
    shape = point.like.shape
    return shape[:-2] + shape[-1:]


def is_norm(module: nn.Module) -> bool:
    """Whether this is a LayerNorm, an RMSNorm or the like."""
    name = type(module).__name__.lower()
    return name.endswith("norm") or ("norm" in name and next(module.children(), None) is None)


CODE: dict[Any, Any] = {}
"""Functions whose code has been rewritten; torch.compile reads a dictionary, and not a cached function."""


def _code(function: Any) -> Any:
    if function not in CODE:
        CODE[function] = rewritten(function, Handlers)
    return CODE[function]


def _can_be_followed(module: nn.Module, is_alone: bool) -> bool:
    """Whether a residual may be inside: it is made of modules or is given more, and its code is that of its class."""
    if is_norm(module) or type(module).__module__.startswith("torch.") or "forward" in vars(module):
        return False
    return not is_alone or next(module.children(), None) is not None
