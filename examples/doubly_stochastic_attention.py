# %% [markdown]
# # Attention in which nobody is left out
#
# Four keys and four locks lie on a table, in any order. Each key carries a number, and each lock must tell the number of its
# key, and each key that of its lock. Their codes are noisy, so a key may look right for two locks; but as
# every lock has exactly one key, what another lock takes is not left for this one.
#
# Softmax attention normalises rows: each token decides for itself. If rows *and* columns sum to one, tokens compete. The
# matrix `go` makes of scores S is exact, and it is equivariant: it takes A = S - Sᵀ, and renaming the tokens
# renames rows and columns of the result. It takes a minute on a laptop.

# %%
import torch
from torch import nn

import gomhc
from gomhc.birkhoff.measures import marginal_error

PAIRS, CODE, NOISE, BATCH = 4, 3, 0.3, 64
STEPS = 400
TOKENS = 2 * PAIRS


# %%
def draw(batch, generator):
    """Tokens (batch, time, features), and the number of each one's partner (batch, time)."""
    code = torch.randn(batch, PAIRS, CODE, generator=generator)
    keys = code + NOISE * torch.randn(code.shape, generator=generator)
    locks = code + NOISE * torch.randn(code.shape, generator=generator)
    numbers = torch.randn(batch, TOKENS, generator=generator)
    features = torch.cat((nn.functional.pad(keys, (0, CODE)), nn.functional.pad(locks, (CODE, 0))), dim=1)
    wanted = numbers.roll(PAIRS, dims=1)
    order = torch.rand(batch, TOKENS, generator=generator).argsort(-1)
    tokens = torch.cat((features, numbers[..., None]), dim=-1)
    return tokens.take_along_dim(order[..., None], 1), wanted.take_along_dim(order, 1)


# %% [markdown]
# ## Three attentions
# They differ in how scores become weights.

# %%
sinkhorn = gomhc.Sinkhorn(num_streams=TOKENS)
go = gomhc.Orthostochastic(num_streams=TOKENS, expressivity=1, layout="square")
WEIGHTS = {
    "softmax": lambda scores: scores.softmax(-1),
    "sinkhorn": lambda scores: sinkhorn(scores.flatten(-2)),
    "go": lambda scores: go(scores.flatten(-2)),
}


class Attention(nn.Module):
    """One head: features make the scores, and weights gather the numbers."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights
        self.query, self.key = (nn.Sequential(nn.Linear(2 * CODE, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))

    def forward(self, tokens):
        features, numbers = tokens[..., :-1], tokens[..., -1:]
        scores = self.query(features) @ self.key(features).mT / 32**0.5
        weights = self.weights(scores)
        return (weights @ numbers).squeeze(-1), weights


# %%
def train(name):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Attention(WEIGHTS[name])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        tokens, wanted = draw(BATCH, generator)
        loss = (model(tokens)[0] - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def judge(model):
    tokens, wanted = draw(1000, torch.Generator().manual_seed(1))
    with torch.no_grad():
        told, weights = model(tokens)
    return (told - wanted).square().mean().item(), marginal_error(weights.double()).max().item()


for name in WEIGHTS:
    error, off = judge(train(name))
    print(f"{name:10} squared error {error:.3f} (guessing gives 1), worst sum of a row or column off by {off:.0e}")
    assert off < 1e-5 or name != "go"

# %% [markdown]
# ## Equivariance
# Tokens in another order get the same weights in that order.

# %%
scores = torch.randn(TOKENS, TOKENS)
order = torch.randperm(TOKENS)
renamed = WEIGHTS["go"](scores[order][:, order])
assert torch.allclose(renamed, WEIGHTS["go"](scores)[order][:, order], atol=1e-5)
