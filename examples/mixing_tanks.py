# %% [markdown]
# # A model that cannot lose heat
#
# Six tanks of one size exchange liquid through pumps. Five knobs say how hard each pump works in the next minute.
# We see how warm the tanks are before and after a minute, with noise, and learn how the knobs mix them; then the
# model runs for a day by itself.
#
# Two laws hold: heat is neither made nor lost, so the columns of the matrix sum to one; and tanks that are equally
# warm stay so, so its rows do. A network that makes the logits of `go` from the knobs obeys both laws, to rounding,
# at each of 1,440 steps. With twenty Sinkhorn iterations it obeys one of them. A free matrix drifts. It takes half
# a minute on a laptop.

# %%
import torch
from torch import nn

import gomhc

TANKS, KNOBS, NOISE, MINUTES = 6, 5, 0.05, 1440
STEPS = 1500
MIXINGS = ("go", "sinkhorn", "unconstrained")

# %% [markdown]
# ## The true system
# Pump k exchanges liquid between tank k and tank k + 1; its share rises with its knob.


# %%
def true_matrices(knobs):
    """Matrices (*batch, tanks, tanks) of a minute with these knobs (*batch, tanks - 1)."""
    matrix = torch.eye(TANKS)
    for pump in range(KNOBS):
        share = 0.5 * knobs[..., pump, None, None].sigmoid()
        swapped = torch.eye(TANKS)
        swapped[[pump, pump + 1]] = swapped[[pump + 1, pump]]
        matrix = ((1 - share) * torch.eye(TANKS) + share * swapped) @ matrix
    return matrix


def draw(batch, generator):
    """Knobs, and what the tanks' thermometers say before and after a minute."""
    knobs = 2 * torch.randn(batch, KNOBS, generator=generator)
    before = torch.randn(batch, TANKS, generator=generator)
    after = (true_matrices(knobs) @ before[..., None]).squeeze(-1)
    return knobs, before, after + NOISE * torch.randn(after.shape, generator=generator)


# %% [markdown]
# ## The model
# A small network turns knobs into logits, and the mixing turns logits into the matrix.


# %%
class Plant(nn.Module):
    def __init__(self, mixing):
        super().__init__()
        self.mixing = gomhc.PARAMETRIZATIONS[mixing](num_streams=TANKS)
        self.logits = nn.Sequential(nn.Linear(KNOBS, 64), nn.GELU(), nn.Linear(64, self.mixing.num_logits))
        with torch.no_grad():
            self.logits[-1].bias.copy_(self.mixing.initial_logits(torch.Generator().manual_seed(0)))

    def forward(self, knobs, heat):
        return (self.mixing(self.logits(knobs)) @ heat[..., None]).squeeze(-1)


def train(mixing):
    torch.manual_seed(0)
    model, generator = Plant(mixing), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        knobs, before, after = draw(128, generator)
        loss = (model(knobs, before) - after).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


# %% [markdown]
# ## A day without thermometers
# Equally warm tanks must stay at 1. One hot tank must spread its heat, and the total must stay.


# %%
@torch.no_grad()
def run_for_a_day(model):
    knobs = 2 * torch.randn(MINUTES, KNOBS, generator=torch.Generator().manual_seed(2))
    equal, hot = torch.ones(TANKS), TANKS * torch.eye(TANKS)[0]
    for minute in knobs:
        equal, hot = model(minute, equal), model(minute, hot)
    return (equal - 1).abs().max().item(), abs(hot.sum().item() / TANKS - 1)


print(f"squared error of a perfect model: {NOISE**2:.4f}")
drifts = {}
for mixing in MIXINGS:
    model = train(mixing)
    with torch.no_grad():
        knobs, before, after = draw(2000, torch.Generator().manual_seed(1))
        error = (model(knobs, before) - after).square().mean().item()
    drifts[mixing] = run_for_a_day(model)
    equal, total = drifts[mixing]
    print(f"{mixing:14} squared error {error:.4f}; after a day equal tanks differ by {equal:.0e}, heat by {total:.0e}")
assert max(drifts["go"]) < 1e-3
