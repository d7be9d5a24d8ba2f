"""Command lines that somebody may type: wrong ones that must be refused, and random ones."""

from __future__ import annotations

import random

SMALL = "--num-layers 1 --num-heads 1 --num-channels 8 --context-length 8 --sample-tokens 3 --evaluation-windows 2"
TRAIN = f"train --corpus corpus.txt --steps 1 --batch-size 2 --out new {SMALL}"
JUDGE = "judge stories.jsonl --model j --base-url http://127.0.0.1:9/v1 --dry-run"

_LISTED = f"""
exactnes
exactness --seconds nan
exactness --seconds -1
exactness --json /proc/nowhere/rows.json
bench
bench foo
bench layer --tokens 0
bench layer --num-channels -4
bench layer --threads 0
bench layer --threads 100000000000
bench layer --rounds 0
bench layer --tokens many
bench layer --json /proc/nowhere/rows.json
bench layer --json /dev/null
bench projection --num-matrices 0
bench step --num-heads 5
bench step --num-heads 0
bench step --num-layers 0
bench step --vocab-size 0
reproduce --only
reproduce --only fig99
reproduce --jobs 0
reproduce --jobs -1
reproduce --jobs 99999999999
reproduce --jobs many
reproduce --scale huge
reproduce --format pdf
reproduce --out /proc/nowhere --only counts
reproduce --out corpus.txt --only counts
judge
judge nowhere --model j
judge stories.jsonl
{JUDGE} --trials 0
{JUDGE} --trials 1000000000000
{JUDGE} --concurrency 0
{JUDGE} --concurrency 100000000000
{JUDGE} --attempts 0
{JUDGE} --timeout 0
{JUDGE} --timeout nan
{JUDGE} --timeout inf
{JUDGE} --pause -1
{JUDGE} --pause nan
{JUDGE} --temperature nan
{JUDGE} --temperature -1
{JUDGE} --answer-tokens 0
{JUDGE} --answer-format xml
{JUDGE} --story-tokens 0
{JUDGE} --story-temperature nan
{JUDGE} --story-temperature -1
{JUDGE} --top-k 0
{JUDGE} --seed -1
{JUDGE} --input-price nan --output-price 1
{JUDGE} --input-price 1 --output-price -1
{JUDGE} --input-price 1
{JUDGE} --openings nowhere.txt
{JUDGE} --openings /dev/zero
{JUDGE} --prompts nowhere
{JUDGE} --store /proc/nowhere/judge.sqlite
{JUDGE} --store corpus.txt
{JUDGE} --store run
{JUDGE} --out corpus.txt
judge stories.jsonl --model j --base-url nonsense
judge stories.jsonl --model j --base-url http://
judge stories.jsonl --model j --base-url http://a:99999999/v1
judge stories.jsonl stories.jsonl --model j
judge stories.jsonl --model j j
judge corpus.txt --model j
judge /dev/zero --model j
train novels
train --stpes 3
train --resume nowhere
train --resume corpus.txt
train --resume run/checkpoints/step-00000006
train --resume run --steps 3
train --resume run --out other
train --out run
train --out corpus.txt
train --out /proc/nowhere/run
{TRAIN} --num-heads 0
{TRAIN} --num-heads 3
{TRAIN} --num-channels -16
{TRAIN} --num-channels 0
{TRAIN} --num-channels 8.5
{TRAIN} --num-layers 0
{TRAIN} --num-layers 1000000000000
{TRAIN} --num-streams 0
{TRAIN} --num-streams 1000000000000000000
{TRAIN} --context-length 0
{TRAIN} --context-length 1000000000000
{TRAIN} --dropout 1
{TRAIN} --dropout nan
{TRAIN} --steps 0
{TRAIN} --batch-size 0
{TRAIN} --batch-size 100000000000
{TRAIN} --accumulation 0
{TRAIN} --learning-rate nan
{TRAIN} --learning-rate -1
{TRAIN} --learning-rate inf
{TRAIN} --final-learning-rate nan
{TRAIN} --warmup-steps -1
{TRAIN} --weight-decay -1
{TRAIN} --weight-decay nan
{TRAIN} --clip 0
{TRAIN} --clip nan
{TRAIN} --clip inf
{TRAIN} --precision float8
{TRAIN} --evaluate-every 0
{TRAIN} --evaluation-windows 0
{TRAIN} --sample-tokens -1
{TRAIN} --save-every 0
{TRAIN} --keep 0
{TRAIN} --seed -1
{TRAIN} --seed 1000000000000000000000000
{TRAIN} --device tpu
{TRAIN} --device meta
{TRAIN} --parallel pp
{TRAIN} --start nowhere
{TRAIN} --tokenizer nowhere
{TRAIN} --corpus nowhere.txt
{TRAIN} --corpus /dev/zero
{TRAIN} --corpus run
{TRAIN} --mixing magic
{TRAIN} --mixing go:expressivity=999
{TRAIN} --mixing go:expressivity=0
{TRAIN} --mixing go:initial_leak=abc
{TRAIN} --mixing go:initial_leak=0
{TRAIN} --mixing go:initial_leak=1e-300
{TRAIN} --mixing go:rotation=[1]
{TRAIN} --mixing go:expressivity=2,expressivity=3
{TRAIN} --mixing go:1)+f(a=2
{TRAIN} --mixing go:**a
{TRAIN} --mixing kronecker:factors=2
{TRAIN} --mixing kronecker:factors=(2,3)
{TRAIN} --mixing average:term=3
{TRAIN} --mixing sinkhorn-v4:epsilon=abc
{TRAIN} --mixing sinkhorn:num_iterations=1.5
{TRAIN} --mixing permutations --num-streams 9
sample
sample nowhere
sample corpus.txt
sample run --tokens -5
sample run --top-k 0
sample run --temperature nan
sample run --temperature -1
sample run --seed -1
sample run --prompt ☃
inspect
inspect nowhere
inspect run --max-tokens 0
inspect run --max-tokens 1
inspect run --text O
inspect run --file nowhere.txt
inspect run --file /dev/zero
inspect run --html /proc/nowhere/page.html
inspect run --json /proc/nowhere/page.json
"""
LISTED = [line.split() for line in _LISTED.strip().splitlines()]
"""Each of them must be refused; they are meant for a folder with corpus.txt, stories.jsonl and a run, `run`."""

VALUES = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "-16",
    "7",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "abc",
    "None",
    "True",
    "''",
    '""',
    "☃",
    "[]",
    "{}",
    "()",
    "(2,2)",
    "1,2",
    "go",
    "none",
    "/",
    ".",
    "run",
    "corpus.txt",
    "/dev/null",
    "/proc/self",
    "10000000000000000000000000",
    "0x10",
    "1_000",
    "--help=1",
    "\udc80",
]
OPTIONS = {
    "train": """mixing num-streams start corpus tokenizer num-layers num-heads num-channels context-length dropout
        batch-size accumulation learning-rate final-learning-rate warmup-steps weight-decay clip precision
        evaluate-every evaluation-windows sample-tokens save-every keep seed device parallel""",
    "judge": """trials concurrency attempts timeout pause temperature answer-format answer-tokens story-tokens
        story-temperature top-k seed openings prompts store input-price output-price base-url""",
    "sample": "prompt tokens temperature top-k seed",
    "inspect": "text file max-tokens",
}
BASES = {"train": TRAIN, "judge": JUDGE, "sample": "sample run --tokens 3", "inspect": "inspect run"}
MIXING_OPTIONS = [
    "initial_leak",
    "expressivity",
    "rotation",
    "layout",
    "num_terms",
    "term",
    "num_iterations",
    "epsilon",
    "factors",
    "num_streams",
    "key",
    "self",
    "__class__",
    "1",
]
MIXINGS = [
    "go",
    "go-unitary",
    "sinkhorn",
    "sinkhorn-linear",
    "permutations",
    "kronecker",
    "average",
    "transportation",
    "identity",
    "unconstrained",
    "none",
    "magic",
]
MIXING_VALUES = [
    *VALUES,
    "cayley",
    "givens",
    "triangle",
    "(2,)",
    "(1,4)",
    "(0,4)",
    "[2,2]",
    "('a',)",
    "2**9",
    "f(1)",
    "((((",
    "-",
]


def random_mixing(rng: random.Random) -> str:
    """A method with options that may or may not make sense."""
    options = [f"{rng.choice(MIXING_OPTIONS)}={rng.choice(MIXING_VALUES)}" for _ in range(rng.randrange(3))]
    return rng.choice(MIXINGS) + ":" * bool(options) + ",".join(options)


def random_command_line(rng: random.Random) -> list[str]:
    """A command with one or two options that may or may not make sense."""
    name = rng.choice(["train", "train", *OPTIONS])
    arguments = BASES[name].replace("--out new", f"--out new-{rng.random()}").split()
    for _ in range(rng.randrange(1, 3)):
        option = rng.choice(OPTIONS[name].split())
        value = random_mixing(rng) if option == "mixing" else rng.choice(VALUES)
        arguments += [f"--{option}", value]
    return arguments
