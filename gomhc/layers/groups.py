"""Which parameters should the optimizer let decay?"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from gomhc.layers.coefficients import Coefficients
from gomhc.layers.streams import LearnedReadout


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer: matrices decay; biases, norms and static coefficients do not.

    Decay would pull the logits of a mixing matrix to zero, which for go-mHC is the identity, where nothing learns.
    """
    static = set()
    for module in model.modules():
        if isinstance(module, Coefficients | LearnedReadout):
            static |= {id(parameter) for name, parameter in module.named_parameters() if name != "weight"}
        if isinstance(module, parametrize.ParametrizationList):
            static |= {id(parameter) for parameter in module.parameters()}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decaying = [parameter for parameter in parameters if parameter.dim() >= 2 and id(parameter) not in static]
    chosen = {id(parameter) for parameter in decaying}
    others = [parameter for parameter in parameters if id(parameter) not in chosen]
    return [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
