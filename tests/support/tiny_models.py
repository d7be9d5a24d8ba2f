"""A tiny model of any type that transformers knows: its own configuration with every size made small."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

NUM_LAYERS = 4
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL: dict[str, Any] = dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "decoder_vocab_size"), 61)
SMALL |= dict.fromkeys(
    ("hidden_size", "d_model", "n_embd", "emb_dim", "word_embed_proj_dim", "attention_hidden_size", "lru_width"), 32
)
SMALL |= dict.fromkeys(("embedding_size", "input_embedding_size", "output_embedding_size", "embedding_dim"), 32)
SMALL |= dict.fromkeys(
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers", "num_blocks"),
    NUM_LAYERS,
)
SMALL |= dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), NUM_LAYERS)
SMALL |= dict.fromkeys(
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "encoder_attention_heads"), 4
)
SMALL |= dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads", "attention_heads"), 4)
SMALL |= dict.fromkeys(("num_key_value_heads", "num_kv_heads", "linear_num_key_heads", "num_query_groups"), 2)
SMALL |= dict.fromkeys(("linear_num_value_heads", "linear_num_heads"), 4)
SMALL |= dict.fromkeys(
    ("head_dim", "dim_head", "d_head", "kv_channels", "attention_head_dim", "attention_head_size", "swa_head_dim"), 8
)
SMALL |= dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim", "qk_head_dim"), 8)
SMALL |= dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim", "index_head_dim"), 8)
SMALL |= dict.fromkeys(("kv_lora_rank", "q_lora_rank", "o_lora_rank", "gated_norm_rank", "adapter_rank"), 16)
SMALL |= dict.fromkeys(
    ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "decoder_ffn_dim", "ffn_dim"), 48
)
SMALL |= dict.fromkeys(
    ("encoder_ffn_dim", "ffn_hidden_size", "dim_ff", "dff", "feed_forward_size", "shared_intermediate_size", "d_inner"),
    48,
)
SMALL |= dict.fromkeys(
    ("intermediate_size_mlp", "expert_ffn_hidden_size", "dense_intermediate_size", "d_ff", "mlp_intermediate_size"), 48
)
SMALL |= dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4)
SMALL |= dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k"), 2)
SMALL |= dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1)
SMALL |= dict.fromkeys(("index_topk", "index_n_heads"), 2)
SMALL |= dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size", "mamba_d_head", "mamba_head_dim"), 8)
SMALL |= dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 8)
SMALL |= dict.fromkeys(("mamba_dt_rank", "time_step_rank"), 4)
SMALL |= dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups"), 1)
SMALL |= dict.fromkeys(("mamba_chunk_size", "chunk_size"), 8)
SMALL |= dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"), 64)
SMALL |= dict.fromkeys(("sliding_window", "attention_window_size", "window_size", "attention_chunk_size"), 8)
SMALL |= {"hidden_size_per_layer_input": 8, "laurel_rank": 4, "num_kv_shared_layers": 1, "image_size": 16}
SMALL |= {"patch_size": 8, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 64, "d_kv": 8}
SMALL |= {"depth": 2, "out_hidden_size": 32, "num_channels": 3, "query_pre_attn_scalar": 8}
SMALL |= {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1}
SMALL |= {"attn_layer_indices": [1, 3], "first_k_dense_replace": 1, "num_dense_layers": 1, "layer_group_size": 2}
SMALL |= {"layerdrop": 0.0, **SPECIAL}
NOT_NONE = {
    *SPECIAL,
    "head_dim",
    "num_key_value_heads",
    "attn_layer_indices",
    "n_routed_experts",
    "num_experts_per_tok",
}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")


PARTICULAR: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8},
    "falcon_h1": {"mamba_d_ssm": 64},
    "longcat_flash": {"qk_head_dim": 16},
    "xmod": {"default_language": "en_XX"},
    "reformer": {"is_decoder": True, "axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "qwen2_5_vl_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}},
    "zaya": {"num_experts_per_tok": 1},
    "gemma3n_text": {"num_kv_shared_layers": 0},
}
"""What the general rules do not get right."""


def tiny_config(config_class: type[PreTrainedConfig], **changes: Any) -> PreTrainedConfig:
    """The configuration with every size that has a known name made small, and its patterns along the depth kept."""
    default = config_class()
    options: dict[str, Any] = {}
    stored = default.to_dict()
    names = {*stored, *default.attribute_map}
    depth = next((stored[name] for name in LAYERS if isinstance(stored.get(name), int)), None)
    for name in names:
        value = stored.get(name)
        is_meant = value is not None or name in NOT_NONE
        if name in SMALL and name in stored and is_meant and not isinstance(value, list):
            options[name] = SMALL[name]
        elif isinstance(value, list) and depth is not None and len(value) == depth:
            options[name] = _pattern(value)
    if "kv_lora_rank" in options and "num_key_value_heads" in options:
        options["num_key_value_heads"] = options["num_attention_heads"]
    for name in default.sub_configs:
        if isinstance(getattr(default, name, None), PreTrainedConfig):
            options[name] = tiny_config(type(getattr(default, name))).to_dict()
    return config_class(**{**options, **PARTICULAR.get(config_class.model_type, {}), **changes})


def _pattern(values: list[Any]) -> list[Any]:
    """The first few, and every kind that comes later."""
    kinds = list({str(value): value for value in values}.values())
    first = values[:NUM_LAYERS]
    missing = [kind for kind in kinds if kind not in first][: NUM_LAYERS - 1]
    return [*first[: NUM_LAYERS - len(missing)], *missing]


def tiny_model(model_class: type[PreTrainedModel], config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """One that knows nothing, with weights large enough that every branch matters."""
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def tiny(model_type: str, **changes: Any) -> Any:
    """The tiny causal language model of this type."""
    model_class = getattr(transformers, CAUSAL[model_type])
    return tiny_model(model_class, tiny_config(model_class.config_class, **changes))
