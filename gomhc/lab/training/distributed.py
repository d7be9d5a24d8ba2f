"""Training with several processes, which `torchrun` starts; each takes its share of every batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from gomhc.checks import require_choice

FAILED = "\0failed"
"""Sent by the main process instead of a value, if it failed."""
LONGEST_WAIT = timedelta(hours=2)
"""How long processes wait for one another: the main one may download and tokenize a corpus. By default NCCL waits ten
minutes."""
Parallel = Literal["ddp", "fsdp"]
"""Each process holds the whole model, or a share of it."""


@dataclass(frozen=True)
class World:
    """The processes that train together, and where this one computes."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    @property
    def memory(self) -> int:
        """Memory of the device in bytes; 2**63 if the system does not report it."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_properties(self.device).total_memory
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):  # Windows and others do not have these names
            return 2**63

    def share(self, batch: Tensor) -> Tensor:
        """Return the part of a batch for this process."""
        return batch.chunk(self.size)[self.rank]

    def sum(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def first(self, value: str | None) -> str | None:
        """Return the value of the first process whose value is not None, or None."""
        if self.size == 1:
            return value
        gathered: list[str | None] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return next((one for one in gathered if one is not None), None)

    def from_main(self, make: Callable[[], str]) -> str:
        """Return what `make` returns in the main process; if it raises an error there, the others exit silently."""
        if not self.is_main:
            value = self.first(None)
            if value is None or value == FAILED:
                raise SystemExit(1)
            return value
        try:
            value = make()
        except BaseException:
            self.first(FAILED)
            raise
        self.first(value)
        return value

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, or run as a single process; inside another world, be the same one."""
    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    require_choice("device", device, ("auto", "cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device must be cpu or auto, because torch sees no GPU here; got cuda")
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if kind == "cuda":
        kind = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    place = torch.device(kind)
    if place.type == "cuda":
        torch.cuda.set_device(place)  # before the first collective, or NCCL puts every process on the first GPU
    if size == 1 or dist.is_initialized():
        yield World(rank, size, place)
        return
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=LONGEST_WAIT)
    try:
        yield World(rank, size, place)
    finally:
        dist.destroy_process_group()


def distribute(model: nn.Module, blocks: nn.ModuleList, world: World, parallel: Parallel) -> nn.Module:
    """Return the model wrapped for DDP or FSDP; a single process gets the model itself."""
    if world.size == 1:
        return model
    if parallel == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(world.device.type, (world.size,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # in place
    return model


def no_sync(model: nn.Module, last: bool) -> Any:
    """Return a context that exchanges gradients between processes only for the last batch of an update."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    return nullcontext()


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Inside, every process has all weights of a sharded model, so that its parts can be called."""
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.unshard()
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()


def gather(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return weights and optimizer state by name, unsharded and on the CPU; empty except in the main process."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    state: Any = get_optimizer_state_dict(model, optimizer, options=options).get("state", {})
    flat = {f"{name}/{key}": value for name, values in state.items() for key, value in values.items()}
    return _packed(weights), _packed(flat)


def scatter(
    model: nn.Module, optimizer: torch.optim.Optimizer, weights: dict[str, Tensor], state: dict[str, Tensor]
) -> None:
    """Load what `gather` returned; every process passes all of it."""
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, dict(weights), options=options)
    nested: dict[str, Any] = {}
    for name, value in state.items():
        parameter, _, key = name.rpartition("/")
        nested.setdefault(parameter, {})[key] = value
    groups = get_optimizer_state_dict(model, optimizer)["param_groups"]
    set_optimizer_state_dict(model, optimizer, {"state": nested, "param_groups": groups}, options=options)


def _packed(tensors: dict[str, Any]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
