"""Another mixing for a model of transformers that has hyper-connections of its own."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any, TypeVar

from torch import nn

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.description import describe, from_description
from gomhc.birkhoff.parametrization import FIT_TOLERANCE
from gomhc.integrations.deepseek_v4 import SinkhornPlace, find_sinkhorn
from gomhc.integrations.unmixed_streams import UnmixedPlace, find_unmixed

Model = TypeVar("Model", bound=nn.Module)


def swap_mixing(model: Model, mixing: Parametrization | str | None, *, copy: bool = False) -> Model:
    """Replace the mixing of a model that already has hyper-connections. Reads and writes stay the same.

    If the model mixes with Sinkhorn (deepseek_v4, glm5_next), the new mixing is fitted to the matrix that the bias
    gives, and keeps to first order how tokens steer that matrix. Swapping back restores the outputs if the fit is exact
    and Sinkhorn's iterations converge.

    If the model does not mix its streams (hy_v4, qwen4_exp), it gets a mixing. The initial matrices are near the
    identity, but not on it, where nothing would learn; `initial_leak` of the mixing sets the distance. Swapping back
    restores the model.

    `save_pretrained` and `gomhc.from_pretrained` work with such models.

    Args:
        model: a model of transformers (deepseek_v4, glm5_next, hy_v4, qwen4_exp).
        mixing: a value or text, as for :class:`gomhc.HyperConnection`; None restores the original.
        copy: whether to change a copy of the model instead of the model itself.

    Returns:
        The changed model.

    Example::

        >>> from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
        >>> config = DeepseekV4Config(
        ...     vocab_size=61, hidden_size=32, moe_intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        ...     num_key_value_heads=1, head_dim=16, q_lora_rank=16, o_lora_rank=16, o_groups=2, n_routed_experts=4,
        ...     num_experts_per_tok=2, index_n_heads=2, index_head_dim=16,
        ... )
        >>> model = gomhc.swap_mixing(DeepseekV4ForCausalLM(config), "go")
        >>> model = gomhc.swap_mixing(model, None)
    """
    from gomhc.integrations.checkpoints import mark, require_loadable, unmark  # which take transformers

    places = _places(model)
    chosen = None if mixing is None else as_mixing(mixing, places[0].num_streams)
    pretrained: Any = model
    require_loadable(pretrained)
    if copy:
        pretrained = deepcopy(model)
        places = _places(pretrained)
    distance = max([place.swap(chosen) for place in places])
    if chosen is not None:
        mark(pretrained, "swap_mixing", {"parametrization": describe(chosen)})
    elif hasattr(pretrained.config, "gomhc"):
        unmark(pretrained)
    if distance > FIT_TOLERANCE:
        closer = (
            "a larger expressivity, Transportation or Permutations come closer"
            if isinstance(places[0], SinkhornPlace)
            else "a smaller initial_leak comes closer"
        )
        warnings.warn(
            f"the matrices of {chosen} are up to {distance:.2g} away from the model's: "
            f"it no longer computes quite the same; {closer}",
            stacklevel=2,
        )
    return pretrained


def rebuild(model: nn.Module, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    mixing = from_description(description["parametrization"])
    for place in _places(model):
        place.rebuild(mixing)


def _places(model: nn.Module) -> list[SinkhornPlace | UnmixedPlace]:
    """The hyper-connections of a model, which are of one kind."""
    places: list[SinkhornPlace | UnmixedPlace] = [*find_sinkhorn(model), *find_unmixed(model)]
    if not places:
        raise ValueError(
            f"expected a model with hyper-connections of its own (deepseek_v4, glm5_next, hy_v4 or qwen4_exp of "
            f"transformers), got {type(model).__name__}; gomhc.upcycle adds streams to a model that has none"
        )
    return places
