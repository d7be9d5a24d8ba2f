"""Parameter groups for an optimizer: which parameters decay, and which have a learning rate of their own."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from gomhc.checks import require_number
from gomhc.layers.coefficients import Coefficients
from gomhc.layers.expand_readout import LearnedReadout
from gomhc.layers.frac_connection import FracConnection
from gomhc.layers.from_logits import FromLogits


def parameter_groups(
    model: nn.Module, weight_decay: float, coefficient_learning_rate: float | None = None
) -> list[dict[str, Any]]:
    """Return parameter groups for an optimizer: weight matrices decay; biases, norms and scales do not.

    Decay would pull the logits of a mixing matrix to zero. For go-mHC this is the identity, where nothing learns.
    Weights with other parametrizations (`weight_norm`, `spectral_norm`) decay like any matrix.

    Args:
        model: any module.
        weight_decay: weight decay of the weight matrices.
        coefficient_learning_rate: learning rate of the parameters that compute the coefficients (read, write and mix)
            of the hyper-connections, which then get groups of their own; by default, they learn at the rate of all
            other weights. If you train a network from scratch with AdamW, a tenth of the other rate is a good choice.

    Returns:
        Two groups: the parameters that decay, then the others. With `coefficient_learning_rate`, two more groups
        follow: the coefficients' parameters that decay, then those that do not.

    Example::

        >>> connection = gomhc.HyperConnection(nn.Linear(8, 8), dim=8)
        >>> groups = gomhc.parameter_groups(connection, weight_decay=0.1, coefficient_learning_rate=1e-4)
        >>> optimizer = torch.optim.AdamW(groups, lr=1e-3)
    """
    if coefficient_learning_rate is not None:
        require_number("coefficient_learning_rate", coefficient_learning_rate, least=0)
    static = set()
    for module in model.modules():
        if isinstance(module, Coefficients | LearnedReadout | FracConnection):
            static |= {id(parameter) for parameter in (module.bias, module.scale)}
        if isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], FromLogits):
            static |= {id(parameter) for parameter in module.parameters(recurse=False)}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decaying = [parameter for parameter in parameters if parameter.dim() >= 2 and id(parameter) not in static]
    chosen = {id(parameter) for parameter in decaying}
    others = [parameter for parameter in parameters if id(parameter) not in chosen]
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    if coefficient_learning_rate is None:
        return groups
    coefficients = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Coefficients | FracConnection)
        for parameter in module.parameters(recurse=False)
    }

    def part(group: dict[str, Any], own: bool, **rate: float) -> dict[str, Any]:
        return group | {"params": [weight for weight in group["params"] if (id(weight) in coefficients) == own]} | rate

    own_groups = [part(group, True, lr=coefficient_learning_rate) for group in groups]
    return [part(group, False) for group in groups] + [group for group in own_groups if group["params"]]
