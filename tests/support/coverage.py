"""What `gomhc.upcycle` does to a tiny model of a type that transformers knows: equal, refused, or cannot be built."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from decoders import moved
from tiny_models import NUM_LAYERS, tiny_config, tiny_model
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

import gomhc

TABLE = Path(gomhc.__file__).parent / "integrations" / "COVERAGE.md"
EPS = torch.finfo(torch.float32).eps
OTHERS = {
    "vit": "ViTForImageClassification",
    "dinov2": "Dinov2ForImageClassification",
    "siglip": "SiglipModel",
    "clip": "CLIPModel",
    "modernbert": "ModernBertForMaskedLM",
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "deberta-v2": "DebertaV2ForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "gemma3": "Gemma3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "idefics3": "Idefics3ForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
}
"""Models that are not decoders alone, by type."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a model."""

    model_class: str
    status: str
    """`equal`, `refused`, `wrong` or `cannot be built`."""
    reason: str = ""
    connections: str = ""
    """The names of the connections of its layers."""


def examine(model_class: Any, folder: Path | None = None) -> Verdict:
    """Compare a tiny model with its upcycled copy; in the folder the copy is saved, with what it gives."""
    name = model_class.__name__
    try:
        model: Any = tiny_model(model_class, tiny_config(model_class.config_class))
        inputs = example(model)
        expected = outputs(model, inputs)
    except Exception as error:
        return Verdict(model_class=name, status="cannot be built", reason=_short(error))
    try:
        changed = gomhc.upcycle(model, copy=True)
    except ValueError as error:
        return Verdict(model_class=name, status="refused", reason=_short(error).removeprefix(f"{name}: "))
    rounding = EPS * _amplification(model, inputs, expected)
    wrong = [
        what
        for what, is_right in (
            ("outputs", lambda: _close(outputs(changed, inputs), expected, 256 * rounding)),
            ("training", lambda: _close(outputs(changed, inputs, True), outputs(model, inputs, True), 256 * rounding)),
            ("generation", lambda: _same_text(model, changed, inputs)),
            ("gradients", lambda: _same_gradients(model, changed, inputs, 4096 * rounding)),
            ("streams", lambda: not _close(outputs(moved(changed), inputs), expected, 1e-3)),
        )
        if not is_right()
    ]
    if folder is not None and _is_loaded_as_it_was(model, inputs):
        changed.save_pretrained(folder)
        torch.save((inputs, outputs(changed, inputs)), folder / "given.pt")
    status = "wrong" if wrong else "equal"
    return Verdict(model_class=name, status=status, reason=", ".join(wrong), connections=_connections(changed))


def _amplification(model: Any, inputs: dict[str, Any], expected: list[torch.Tensor]) -> float:
    """By how much the tolerance must grow for a model that amplifies rounding, at least 1.

    Streams add a few roundings at each connection, so outputs may differ by four times as much as they do if each
    weight moves by one rounding. Those of cpmant (5.22) move by 240 roundings then, and the plain model is 400 away
    from its own float64.
    """
    nudged, generator = copy.deepcopy(model), torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in nudged.parameters():
            parameter.mul_(1 + EPS * (2 * torch.randint(2, parameter.shape, generator=generator) - 1))
    moves = [
        (a - b)[b.isfinite()].abs().max().item() / b[b.isfinite()].abs().max().item()
        for a, b in zip(outputs(nudged, inputs), expected, strict=True)
    ]
    return max(1.0, 4 * max(moves) / (256 * EPS))


def _is_loaded_as_it_was(model: Any, inputs: dict[str, Any]) -> bool:
    """Whether the plain model itself survives saving and loading; youtu (5.22) zeroes the row of the padding token."""
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = type(model).from_pretrained(folder).eval()
    return _close(outputs(loaded, inputs), outputs(model, inputs), 256 * EPS)


def _connections(model: Any) -> str:
    stacks = model.config.gomhc["stacks"]
    return "; ".join(
        f"{stack['path']}: " + " or ".join(dict.fromkeys(", ".join(kind["places"].values()) for kind in stack["kinds"]))
        for stack in stacks
    )


def example(model: Any) -> dict[str, Any]:
    from gomhc.integrations.example_inputs import example_inputs

    return example_inputs(model)


def outputs(model: Any, inputs: dict[str, Any], training: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(3)
    with torch.no_grad():
        found = model.train(training)(**inputs)
    model.eval()
    return [value for value in found.values() if isinstance(value, torch.Tensor) and value.is_floating_point()]


def _close(found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> bool:
    return all(
        torch.allclose(a, b, rtol=0, atol=tolerance * b[b.isfinite()].abs().max().item())
        for a, b in zip(found, expected, strict=True)
    )


def _same_text(model: Any, changed: Any, inputs: dict[str, Any]) -> bool:
    """Greedy generation with a cache, where the plain model can do it."""
    if "input_ids" not in inputs or not model.can_generate():
        return True
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    try:
        expected = model.generate(inputs["input_ids"], **options)
    except Exception:  # the plain model cannot
        return True
    return torch.equal(changed.generate(inputs["input_ids"], **options), expected)


def _same_gradients(model: Any, changed: Any, inputs: dict[str, Any], tolerance: float) -> bool:
    """Of all plain weights, for a random cotangent of the first output."""
    expected, found = (_gradients(one, inputs) for one in (model, changed))
    scale = max(gradient.abs().max().item() for gradient in expected.values())
    return all((found[name] - gradient).abs().max() <= tolerance * scale for name, gradient in expected.items())


def _gradients(model: Any, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    first = next(value for value in model(**inputs).values() if isinstance(value, torch.Tensor) and value.requires_grad)
    finite = torch.where(first.isfinite(), first, 0)
    (finite * torch.randn(first.shape, generator=torch.Generator().manual_seed(5))).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def _short(error: Exception) -> str:
    return f"{error}".strip().split("\n")[0][:160] or type(error).__name__


LOADING = """
import sys, pathlib, torch, transformers, gomhc
transformers.logging.set_verbosity_error()
for folder in map(pathlib.Path, sys.argv[1:]):
    inputs, expected = torch.load(folder / "given.pt")
    torch.manual_seed(3)
    with torch.no_grad():
        found = gomhc.from_pretrained(folder).eval()(**inputs)
    found = [value for value in found.values() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    largest = max(value[value.isfinite()].abs().max().item() for value in expected)
    close = [torch.allclose(a, b, rtol=0, atol=1e-6 * largest) for a, b in zip(found, expected)]
    print(folder.name, all(close), flush=True)
"""


def loaded_in_another_process(folders: list[Path]) -> dict[str, bool]:
    """By the name of the folder: whether the loaded model gives what the saved one gave."""
    command = [sys.executable, "-c", LOADING, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines()]
    if len(rows) < len(folders):
        print(done.stderr[-2000:])
    return {**{folder.name: False for folder in folders}, **{name: same == "True" for name, same in rows}}


def classes() -> tuple[dict[str, Any], dict[str, Any]]:
    """Causal language models and other models, by type."""
    causal = {name: getattr(transformers, class_name) for name, class_name in CAUSAL.items()}
    return causal, {name: getattr(transformers, class_name) for name, class_name in OTHERS.items()}


def examine_all(folder: Path) -> tuple[dict[str, Verdict], dict[str, Verdict]]:
    """The verdicts on causal language models and on other models, by type; each model is saved in the folder."""
    verdicts: dict[Any, Verdict] = {}
    causal, others = classes()
    for model_class in (*causal.values(), *others.values()):
        if model_class not in verdicts:
            verdicts[model_class] = examine(model_class, folder / model_class.__name__)
            print(verdicts[model_class], flush=True)
    equal = [folder / one.__name__ for one, verdict in verdicts.items() if verdict.status == "equal"]
    saved = [each for each in equal if (each / "given.pt").exists()]
    print(f"{len(saved)} of {len(equal)} are also saved and loaded", flush=True)
    for start in range(0, len(saved), 20):
        for name, same in loaded_in_another_process(saved[start : start + 20]).items():
            if not same:
                one = getattr(transformers, name)
                verdicts[one] = replace(verdicts[one], status="wrong", reason="loading")
    of_causal, of_others = ({name: verdicts[one] for name, one in part.items()} for part in (causal, others))
    return of_causal, of_others


def table(causal: dict[str, Verdict], others: dict[str, Verdict]) -> str:
    """The verdicts as a page."""
    counts = {status: sum(verdict.status == status for verdict in causal.values()) for status in STATUSES}
    lines = [
        "# What `gomhc.upcycle` gives streams to",
        "",
        f"Tiny models, of up to {NUM_LAYERS} layers with random weights, of every causal language model that "
        f"transformers {transformers.__version__} has: {counts['equal']} equal, {counts['refused']} refused, "
        f"{counts['cannot be built']} that the test cannot build, {counts['wrong']} wrong.",
        "",
        "*Equal* means that a model with streams gives what it gave without them, to rounding: outputs, outputs",
        "in training with the same dropout, greedily generated tokens, gradients of its weights; and that it gives",
        "the same when its coefficients have moved and it has been saved and loaded in another process, if the",
        "plain model does.",
        "`make coverage` writes this page.",
        "",
    ]
    for title, verdicts in (("Causal language models", causal), ("Other models", others)):
        lines += [
            f"## {title}",
            "",
            "| type | class | | branches that got connections, or why not |",
            "|---|---|---|---|",
        ]
        for name, verdict in sorted(verdicts.items()):
            what = (verdict.connections or verdict.reason).replace("|", "\\|")
            lines.append(f"| {name} | {verdict.model_class} | {verdict.status} | {what} |")
        lines.append("")
    return "\n".join(lines)


STATUSES = ("equal", "refused", "cannot be built", "wrong")


def stored_statuses() -> dict[str, str]:
    """The status of each class in the page that is stored."""
    rows = [line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    return {row[2].strip(): row[3].strip() for row in rows[1:] if len(row) > 4}


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        TABLE.write_text(table(*examine_all(Path(folder))))
