# %% [markdown]
# # Learn a permutation
#
# Eight sensors were plugged into the wrong sockets. We see what the sensors sent and what arrived, with noise, and
# want to know which went where. The answer is a permutation matrix, which cannot be learned by gradient descent; a
# doubly stochastic matrix can, and every permutation is one.
#
# `gomhc.doubly_stochastic` constrains the weight of a linear layer. We compare two exact mixings with
# two forms of Sinkhorn's iteration. It takes half a minute on a laptop.

# %%
import torch

import gomhc
from gomhc.birkhoff.measures import marginal_error

SENSORS, SAMPLES, NOISE = 8, 32, 0.5
STEPS = 400
MIXINGS = ("go", "transportation", "sinkhorn", "sinkhorn-linear")

# %% [markdown]
# ## The task
# Row i of the true matrix has its one where socket i gets its signal from.

# %%
generator = torch.Generator().manual_seed(0)
order = torch.randperm(SENSORS, generator=generator)
truth = torch.eye(SENSORS)[order]
sent = torch.randn(SAMPLES, SENSORS, generator=generator)
arrived = sent @ truth.T + NOISE * torch.randn(SAMPLES, SENSORS, generator=generator)

# %% [markdown]
# ## Training
# The optimizer sees the free reals of each mixing; the layer sees a matrix.


# %%
def learn(mixing):
    torch.manual_seed(0)
    layer = torch.nn.Linear(SENSORS, SENSORS, bias=False)
    gomhc.doubly_stochastic(layer, "weight", mixing, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(STEPS):
        loss = (layer(sent) - arrived).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), layer.weight.detach()


learned = {mixing: learn(mixing) for mixing in MIXINGS}
print(f"noise alone would give {NOISE**2:.3f}")
for mixing, (loss, matrix) in learned.items():
    right = (matrix.argmax(-1) == order).sum().item()
    error = marginal_error(matrix.double()).item()
    print(f"{mixing:16} loss {loss:.4f}, {right} of {SENSORS} sensors found, sums are off by {error:.0e}")
    assert error < 1e-5 or gomhc.PARAMETRIZATIONS[mixing](num_streams=4).promise != gomhc.Promise.EXACT

# %% [markdown]
# ## What was learned
# In the picture, columns are in the order of the truth: a perfect answer is a diagonal.

# %%
from matplotlib.figure import Figure

figure = Figure(figsize=(10, 3), layout="constrained")
for axes, (mixing, (_, matrix)) in zip(figure.subplots(1, len(MIXINGS)), learned.items(), strict=True):
    axes.imshow(matrix[:, order], cmap="Blues", vmin=0, vmax=1)
    axes.set(title=mixing, xticks=[], yticks=[])
figure
