"""Hidden states that are several streams, in the eyes of a layer's own code.

The code of a layer (see `layer_code`) runs with such a value in place of its hidden states. What is called with it
reads the streams, through a hyper-connection; what is added to it is written to them, through the same one. A sum of
several branches that saw the same streams is written at once. d = num_streams, c = channels
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from gomhc.integrations.layer_code import rewritten
from gomhc.layers import HyperConnection, readout
from gomhc.layers.hyper_connection import State


class NotResidualError(ValueError):
    """The code of a layer does something with its hidden states that streams cannot follow."""


class Run:
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
    """A point on the path of the residual: the streams there, and what a connection has read of them."""

    def __init__(self, run: Run, streams: Tensor) -> None:
        self.run = run
        self.streams = streams
        self.connection: HyperConnection | None = None
        self.branch_input: Tensor | None = None
        self.state: State | None = None

    def read(self, place: str) -> Tensor:
        if self.branch_input is None:
            self.connection = self.run.connection(self.run.path + place, self.streams)
            self.branch_input, self.state = self.connection.read(self.streams)
        return self.branch_input

    @property
    def token_shape(self) -> torch.Size:
        return self.streams.shape[:-2] + self.streams.shape[-1:]


class HiddenStreams:
    """Streams (*batch, d, c) that look like hidden states (*batch, c).

    Args:
        point: where the streams were last known.
        pending: what branches have added since then, in the point's shape.
        shape: the shape in which the code sees them.
        dtype: the dtype in which the code sees them.
        factor: what the code has multiplied them by.
    """

    def __init__(
        self,
        point: Point,
        pending: Tensor | None = None,
        shape: torch.Size | None = None,
        dtype: torch.dtype | None = None,
        factor: Any = None,
    ) -> None:
        self.point = point
        self.pending = pending
        self.shape = point.token_shape if shape is None else shape
        self.dtype = point.streams.dtype if dtype is None else dtype
        self.factor = factor
        self.after: HiddenStreams | None = None

    def settled(self) -> HiddenStreams:
        """The same after everything that is pending has been written."""
        if self.pending is None:
            return self
        if self.after is None:
            self.after = HiddenStreams(Point(self.point.run, self._written(self.pending)), shape=self.shape)
        return self.after

    def _written(self, pending: Tensor) -> Tensor:
        point = self.point
        dtype = torch.promote_types(self.dtype, pending.dtype)
        streams = self._scaled(point.streams).to(dtype)
        if point.connection is None or point.state is None:  # nothing has read: all streams get the same
            return streams + pending.unsqueeze(-2)
        point.run.written.append(point.connection)
        return point.connection.write(State(streams, point.state.write, point.state.mix), pending.to(dtype))

    def _scaled(self, x: Tensor) -> Tensor:
        if self.factor is None:
            return x
        factor = self.factor
        if isinstance(factor, Tensor) and factor.ndim > 1 and x.ndim > len(self.point.token_shape):
            factor = factor.unsqueeze(-2)
        return x * factor

    # What the code does with hidden states
    # ------------------------------------------------------------------------------------------------------------------

    def read(self, place: str) -> Tensor:
        """What a branch that begins at this place of the code is to see."""
        now = self.settled()
        seen = now._scaled(now.point.read(place)).to(now.dtype)
        return seen if seen.shape == now.shape else seen.reshape(now.shape)

    def plus(self, branch_output: Any) -> HiddenStreams:
        if isinstance(branch_output, HiddenStreams):
            raise NotResidualError("it adds hidden states to hidden states")
        if self.after is not None:  # another branch has seen what was pending
            return self.after.plus(branch_output)
        if not isinstance(branch_output, Tensor) or branch_output.shape != self.shape:
            branch_output = torch.as_tensor(branch_output, device=self.device).to(self.dtype).expand(self.shape)
        branch_output = branch_output.reshape(self.point.token_shape)
        pending = branch_output if self.pending is None else self.pending + branch_output
        return HiddenStreams(self.point, pending, self.shape, self.dtype, self.factor)

    def times(self, factor: Any) -> HiddenStreams:
        if isinstance(factor, HiddenStreams):
            raise NotResidualError("it multiplies hidden states by hidden states")
        now = self.settled()
        if isinstance(factor, Tensor) and factor.ndim > 1 and now.shape != now.point.token_shape:
            raise NotResidualError("it multiplies hidden states of another shape")
        factor = factor if now.factor is None else now.factor * factor
        return HiddenStreams(now.point, None, now.shape, now.dtype, factor)

    def passed_through(self, module: Any) -> HiddenStreams:
        r"""The streams after x <- N(x) on the path of the residual: N acts on their mean, and all move with it.

        x_i <- x_i + (N(m) - m),    m the mean over streams
        """
        now = self.settled()
        streams = now.finished()
        mean = readout(streams)
        moved = streams + (module(mean) - mean).unsqueeze(-2)
        return HiddenStreams(Point(now.point.run, moved))

    def finished(self) -> Tensor:
        """The streams, all written, in the shape and dtype that the code has given them."""
        now = self.settled()
        streams = now._scaled(now.point.streams).to(now.dtype)
        return streams.reshape(*now.shape[:-1], *streams.shape[-2:])

    # The tensor that they look like
    # ------------------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self.point.streams.device

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
        found = torch.empty(self.shape, device="meta").reshape(wanted).shape
        if found[-1] != self.shape[-1]:
            raise NotResidualError("it takes its hidden states apart")
        now = self.settled()
        return HiddenStreams(now.point, None, found, now.dtype, now.factor)

    def to(self, *args: Any, **kwargs: Any) -> HiddenStreams:
        kwargs.pop("device", None)
        dtypes = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
        dtype = dtypes[0] if dtypes else self.dtype
        now = self.settled()
        return HiddenStreams(now.point, None, now.shape, dtype, now.factor)

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
            if run.level < run.depth and _can_be_followed(function):
                return run.inside(place, 1, type(function).forward, function, *args, **kwargs)
            if run.norms_are_passed and is_norm(function) and len(args) + len(kwargs) == 1:
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


def _run_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, HiddenStreams):
            return value.point.run
        if type(value) in (tuple, list):
            for element in value:
                if isinstance(element, HiddenStreams):
                    return element.point.run
    return None


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


def _can_be_followed(module: nn.Module) -> bool:
    """Whether it is made of other modules, and its code is its class's own."""
    is_made_of_modules = next(module.children(), None) is not None and not type(module).__module__.startswith("torch.")
    return is_made_of_modules and not is_norm(module) and "forward" not in vars(module)
