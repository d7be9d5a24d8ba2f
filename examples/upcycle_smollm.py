"""Give a pretrained decoder four residual streams, check that it computes the same, and train it a little.

    python upcycle_smollm.py                                     # a tiny llama with random weights: no download
    python upcycle_smollm.py HuggingFaceTB/SmolLM2-135M          # or a folder that save_pretrained wrote

It needs gomhc[hf], and takes seconds with the tiny model.
"""

import sys

import torch
import transformers

import gomhc
from gomhc.lab.data.story_grammar import stories

STEPS, LENGTH = 40, 128

torch.manual_seed(0)
text = "\n\n".join(stories(200))
if len(sys.argv) > 1:
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    tokens = torch.tensor(tokenizer(text).input_ids)
else:
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=192, num_hidden_layers=4, num_attention_heads=4
    )
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.tensor(list(text.encode()))  # bytes are tokens
batches = tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH)
held_out, batches = batches[:8], batches[8:]


@torch.no_grad()
def mean_loss(model):
    return model.eval()(held_out, labels=held_out).loss.item()


# One line adds streams. The outputs stay the same, to rounding.
with torch.no_grad():
    before = model.eval()(held_out).logits
    gomhc.upcycle(model, num_streams=4, mixing="go")
    difference = (model(held_out).logits - before).abs().max().item()
print(f"logits of up to {before.abs().max():.2f} differ by {difference:.1e}")
assert difference < 1e-4 * max(1.0, before.abs().max().item())

# The biases and scales of the coefficients do not decay.
print(f"before training: loss {mean_loss(model):.4f}")
optimizer = torch.optim.AdamW(gomhc.parameter_groups(model.train(), weight_decay=0.01), lr=3e-4)
for step in range(STEPS):
    batch = batches[4 * step % (len(batches) - 4) :][:4]
    loss = model.train()(batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"after {STEPS} steps: loss {mean_loss(model):.4f}")

# What do the streams do now?
for name, value in gomhc.inspection.inspect(model, held_out[:1]).summary().items():
    print(f"{name:36} {value:.3g}")
