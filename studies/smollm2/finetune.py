"""SmolLM2-135M-Instruct fine-tuned on TinyStories, plain and with streams: same steps, same data, several seeds.

    PYTHONPATH=tests/support python studies/smollm2/finetune.py --train TRAIN.txt --held-out VALID.txt

Everything goes to `record.json` beside this file. A run that is there already is not repeated. First the learning rate
is chosen for the plain model; all arms use it. A seed chooses the data, their order, and the first mixing matrices, so
arms are compared within a seed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import smollm2  # of tests/support
import torch
import transformers
from scipy.stats import t as student
from torch import Tensor, nn

import gomhc

RECORD = Path(__file__).with_name("record.json")
STEPS, WARMUP, BATCH, LENGTH = 60, 6, 4, 128
HELD_OUT_CHUNKS = 64
TRAIN_CHARACTERS = 2_000_000
WEIGHT_DECAY = 0.01
TUNING_STEPS, TUNING_RATES = 30, (3e-5, 1e-4, 3e-4)
SEEDS = (0, 1, 2)
COEFFICIENT_RATE = 3e-3
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "equal-streams": {"start": "equal-streams", "coefficient_rate": COEFFICIENT_RATE},
    "mean-stream": {"start": "mean-stream", "coefficient_rate": COEFFICIENT_RATE},
}
"""`start`: how the four streams of go-mHC start; without it the model stays plain. `coefficient_rate`: learning rate
of the hyper-connections."""


def chunks(tokenizer: Any, text: str) -> Tensor:
    """The text as rows of LENGTH tokens."""
    tokens = torch.tensor(tokenizer(text).input_ids)
    return tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH)


def optimizer_of(model: nn.Module, rate: float, coefficient_rate: float | None) -> torch.optim.Optimizer:
    """AdamW; coefficients are in groups of their own."""
    ours = {
        id(p)
        for module in model.modules()
        if isinstance(module, gomhc.layers.Coefficients)
        for p in module.parameters()
    }
    groups = []
    for group in gomhc.parameter_groups(model, WEIGHT_DECAY):
        others = [p for p in group["params"] if id(p) not in ours]
        coefficients = [p for p in group["params"] if id(p) in ours]
        groups += [{**group, "params": others, "lr": rate}]
        groups += [{**group, "params": coefficients, "lr": coefficient_rate or rate}]
    return torch.optim.AdamW([group for group in groups if group["params"]], betas=(0.9, 0.95), fused=True)


def loss_of(model: Any, batch: Tensor) -> Tensor:
    """Mean cross-entropy in nats. Products are bfloat16; weights, norms and coefficients are float32."""
    with torch.autocast("cpu", torch.bfloat16):
        return model(batch, labels=batch, use_cache=False).loss


@torch.no_grad()
def held_out_losses(model: Any, data: Tensor) -> list[float]:
    """The loss of each eight chunks."""
    model.eval()
    return [round(loss_of(model, part).item(), 5) for part in data.split(8)]


def finetune(model: Any, data: Tensor, rate: float, coefficient_rate: float | None, steps: int) -> list[float]:
    """Train in place, with warm-up and then a line to zero; return the training losses."""
    optimizer = optimizer_of(model, rate, coefficient_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, (steps - step) / (steps - WARMUP))
    )
    model.train()
    losses = []
    for step in range(steps):
        loss = loss_of(model, data[step * BATCH : (step + 1) * BATCH])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(round(loss.item(), 4))
    return losses


def summarize(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean held-out loss of each arm, and its difference from plain, paired by seed, with Student's 95 % interval."""
    after = {arm: {run["seed"]: run["after"] for run in runs if run["arm"] == arm} for arm in ARMS}
    summary = {}
    for arm, losses in after.items():
        differences = [losses[seed] - after["plain"][seed] for seed in losses if seed in after["plain"]]
        summary[arm] = {"runs": len(losses), "held_out_loss": statistics.mean(losses.values()) if losses else None}
        if arm != "plain" and len(differences) > 1:
            half = student.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
            summary[arm] |= {"difference": statistics.mean(differences), "half_width_95": half}
    return summary


def main() -> None:
    """Tune, run what the record lacks, and summarize."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, required=True)
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"tuning": [], "runs": []}
    record["settings"] = {
        "steps": STEPS,
        "tokens_per_step": BATCH * LENGTH,
        "held_out_tokens": HELD_OUT_CHUNKS * LENGTH,
        "arms": ARMS,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "gomhc": gomhc.__version__},
        "machine": f"{platform.machine()}, {torch.get_num_threads()} thread",
    }

    def save() -> None:
        record["summary"] = summarize(record["runs"])
        RECORD.write_text(json.dumps(record, indent=1) + "\n")

    pretrained, tokenizer = smollm2.load()
    train = chunks(tokenizer, arguments.train.read_text(encoding="utf-8")[:TRAIN_CHARACTERS])
    held_out = chunks(tokenizer, arguments.held_out.read_text(encoding="utf-8"))[:HELD_OUT_CHUNKS]

    def data_of(seed: int) -> Tensor:
        return train[torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))]

    if "before" not in record:
        record["before"] = statistics.mean(held_out_losses(pretrained, held_out))
    for rate in TUNING_RATES:
        if rate in [one["rate"] for one in record["tuning"]]:
            continue
        model = deepcopy(pretrained)
        finetune(model, data_of(100), rate, None, TUNING_STEPS)
        after = statistics.mean(held_out_losses(model, held_out))
        record["tuning"].append({"rate": rate, "steps": TUNING_STEPS, "after": after})
        print(record["tuning"][-1], flush=True)
        save()
    rate = min(record["tuning"], key=lambda one: one["after"])["rate"]

    # Whole seeds come first, so that a record which is not complete can be read.
    order = [(arm, seed) for seed in SEEDS for arm in ARMS]
    for arm, seed in order:
        options = ARMS[arm]
        if (arm, seed) in [(run["arm"], run["seed"]) for run in record["runs"]]:
            continue
        model = deepcopy(pretrained)
        if options:
            gomhc.upcycle(model, 4, "go", start=options["start"], generator=torch.Generator().manual_seed(seed))
        start = time.process_time()
        losses = finetune(model, data_of(seed), rate, options.get("coefficient_rate"), STEPS)
        seconds = time.process_time() - start
        by_part = held_out_losses(model, held_out)
        run = {"arm": arm, "seed": seed, "rate": rate, "after": statistics.mean(by_part)}
        run |= {"cpu_seconds": round(seconds, 1), "train_losses": losses, "held_out_by_part": by_part}
        if options:
            run["inspection"] = gomhc.inspection.inspect(model, held_out[:2]).summary()
        record["runs"].append(run)
        print(arm, seed, run["after"], f"{seconds:.0f} s", flush=True)
        save()
    print(json.dumps(summarize(record["runs"]), indent=1))


if __name__ == "__main__":
    main()
