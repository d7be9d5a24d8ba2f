"""Groups of parameters for an optimizer: which decay, and which do not."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from gomhc.layers.coefficients import Coefficients
from gomhc.layers.expand_readout import LearnedReadout
from gomhc.layers.frac_connection import FracConnection
from gomhc.layers.from_logits import FromLogits


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Divide the parameters for an optimizer: matrices decay; biases, norms and static coefficients do not.

    Decay would pull the logits of a mixing matrix to zero, which for go-mHC is the identity, where nothing learns.
    Weights that others have parametrized (`weight_norm`, `spectral_norm`) decay as any matrix does.

    Args:
        model: any module.
        weight_decay: weight decay of the matrices.

    Returns:
        Two groups, those that decay first.

    Example::

        >>> connection = gomhc.HyperConnection(nn.Linear(8, 8), dim=8)
        >>> optimizer = torch.optim.AdamW(gomhc.parameter_groups(connection, weight_decay=0.1))
    """
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
    return [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
