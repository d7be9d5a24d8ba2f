"""Small decoders of transformers with random weights: one of each family that gomhc can change."""

from __future__ import annotations

from typing import Any

import torch
import transformers

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, **SPECIAL}
GROUPED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 48}
GEMMA = {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
GEMMA3_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4, **SPECIAL}),
    "gpt_neox": ("GPTNeoXForCausalLM", {**SIZES, "intermediate_size": 48}),
    "gpt_neox (in turn)": ("GPTNeoXForCausalLM", {**SIZES, "intermediate_size": 48, "use_parallel_residual": False}),
    "gemma": ("GemmaForCausalLM", {**GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", GEMMA),
    "gemma3_text": ("Gemma3ForCausalLM", {**GEMMA, "layer_types": GEMMA3_LAYERS}),
    "llama": ("LlamaForCausalLM", GROUPED),
    "mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 4}),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}),
    "smollm3": ("SmolLM3ForCausalLM", {**GROUPED, "no_rope_layer_interval": 2}),
}


def decoder(family: str = "llama", **changes: Any) -> Any:
    """One that knows nothing, with weights large enough that every branch matters."""
    name, options = FAMILIES[family]
    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**{**options, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def tokens(batch: int = 2, time: int = 11) -> torch.Tensor:
    return torch.randint(1, 61, (batch, time), generator=torch.Generator().manual_seed(1))


def moved(model: Any, size: float = 0.3) -> Any:
    """The same model after its coefficients have learned something."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "coefficients" in name:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return model


def with_sinkhorn(model_type: str = "deepseek_v4", num_layers: int = 1) -> Any:
    """A small model with hyper-connections in DeepSeek-V4's form, whose matrices differ between layers and tokens."""
    sizes = {"vocab_size": 61, "hidden_size": 32, "moe_intermediate_size": 16, **SPECIAL}
    experts = {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 4,
    }
    torch.manual_seed(0)
    if model_type == "deepseek_v4":
        attention = {"num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 16, "o_groups": 2, "o_lora_rank": 8}
        layers = {"layer_types": ["sliding_attention"] * num_layers, "mlp_layer_types": ["moe"] * num_layers}
        layers |= {"num_hidden_layers": num_layers, "sliding_window": 8}
        config = transformers.DeepseekV4Config(**sizes, **experts, **attention, **layers, partial_rotary_factor=0.5)
        model = transformers.DeepseekV4ForCausalLM(config)
    else:
        attention = {"num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8}
        heads = {"v_head_dim": 8, "qk_nope_head_dim": 8, "linear_head_dim": 8, "linear_num_heads": 2, "index_kpool": 2}
        layers = {"layer_types": ["indexed_attention"] * num_layers, "mlp_layer_types": ["sparse"] * num_layers}
        layers |= {"num_hidden_layers": num_layers, "indexer_types": ["full"] * num_layers}
        config = transformers.Glm5NextTextConfig(
            **sizes, **experts, **attention, **heads, **layers, intermediate_size=48
        )
        model = transformers.Glm5NextTextModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("attn_hc.base", "ffn_hc.base")):
                parameter.normal_()
    return model.eval()


def of_images_and_text() -> Any:
    """A small model of images and text whose text model has hyper-connections in DeepSeek-V4's form."""
    sizes = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 32}
    vision = {**sizes, "patch_size": 4, "spatial_merge_size": 1, "temporal_patch_size": 1}
    places = ["image", "video", "image_start", "image_end", "video_start", "video_end"]
    tokens_of_images = {f"{place}_token_id": number for number, place in enumerate(places, start=3)}
    text = with_sinkhorn("glm5_next_text").config.to_dict()
    config = transformers.Glm5NextConfig(text_config=text, vision_config=vision, **tokens_of_images)
    return transformers.Glm5NextForConditionalGeneration(config).eval()


def with_unmixed_streams(model_type: str = "hy_v4", num_layers: int = 2) -> Any:
    """A small model with hyper-connections that do not mix, whose streams differ."""
    sizes = {
        "vocab_size": 61,
        "hidden_size": 32,
        "moe_intermediate_size": 16,
        "num_hidden_layers": num_layers,
        **SPECIAL,
    }
    torch.manual_seed(0)
    if model_type == "hy_v4":
        heads = {"num_attention_heads": 2, "q_lora_rank": 16, "kv_lora_rank": 8, "v_head_dim": 8}
        heads |= {
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "index_head_dim": 8,
            "index_n_heads": 2,
            "index_topk": 4,
        }
        experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48}
        model = transformers.HYV4ForCausalLM(transformers.HYV4Config(**sizes, **heads, **experts))
    else:
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "hc_lowrank": 8}
        heads |= {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
        heads |= {f"linear_num_{name}_heads": 2 for name in ("key", "value")}
        experts = {"num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 16}
        heads |= {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16}
        heads |= {"indexer_budget": 4, "indexer_compress_ratio": 2}
        layers = {"layer_types": ["linear_attention", "full_attention"][:num_layers]}
        config = transformers.Qwen4ExpTextConfig(**sizes, **heads, **experts, **layers)
        model = transformers.Qwen4ExpForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()
