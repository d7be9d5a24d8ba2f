"""`nanogpt_plain.py` with four residual streams, mixed by go-mHC: a minute or two on a laptop.

At step 0 it computes what the plain model with the same weights does; then reads, writes and mixes learn.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

import gomhc
from gomhc.lab.data.story_grammar import stories

LAYERS, HEADS, DIM, CONTEXT, BATCH = 4, 4, 96, 64, 16
STEPS = 400
STREAMS, MIXING = 4, "go"


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).movedim(-3, 0).transpose(-3, -2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(-3, -2).flatten(-2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 4 * DIM)
        self.out = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return self.out(F.gelu(self.up(self.norm(x))))


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        options = {"dim": DIM, "mixing": MIXING, "num_streams": STREAMS}
        self.attention = gomhc.HyperConnection(Attention(), **options, layer_index=2 * index)
        self.mlp = gomhc.HyperConnection(MLP(), **options, layer_index=2 * index + 1)

    def forward(self, x):
        x = self.attention(x)
        return self.mlp(x)


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, DIM)
        self.positions = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.Sequential(*(Block(index) for index in range(LAYERS)))
        self.norm = nn.LayerNorm(DIM)
        for name, parameter in self.named_parameters():
            if name.endswith(("tokens.weight", "positions.weight", "qkv.weight", "up.weight", "out.weight")):
                depth = math.sqrt(2 * LAYERS) if name.endswith("out.weight") else 1
                nn.init.normal_(parameter, std=0.02 / depth)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[-1]))
        x = gomhc.expand(x, STREAMS)
        x = self.blocks(x)
        x = gomhc.readout(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch_of(data, generator):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH, 1), generator=generator)
    windows = data[starts + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


@torch.no_grad()
def validation_loss(model, data):
    generator = torch.Generator().manual_seed(1)
    return sum(model(*batch_of(data, generator)).item() for _ in range(8)) / 8


text = "\n\n".join(stories(2000))
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])
train, held_out = data[: -len(data) // 10], data[-len(data) // 10 :]

torch.manual_seed(0)
model = GPT(len(letters))
optimizer = torch.optim.AdamW(gomhc.parameter_groups(model, 0.1, coefficient_learning_rate=2e-4), lr=2e-3)
rates = [group["lr"] for group in optimizer.param_groups]
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=STEPS, pct_start=0.1)
generator = torch.Generator().manual_seed(0)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters; step 0: loss {validation_loss(model, held_out):.4f}")
for step in range(1, STEPS + 1):
    loss = model(*batch_of(train, generator))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 100 == 0 or step == STEPS:
        print(f"step {step}: loss {validation_loss(model, held_out):.4f}")
