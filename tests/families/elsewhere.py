"""Families that `transformers` does not have: each is one that it has, under other names. And older
names of families that it has.

A reference of the latter is saved, and its checkpoint becomes one of the former.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Elsewhere:
    """`names` are patterns of names of tensors, which their replacements follow; `keys` other names
    of fields, and `fields` those that the reference does not have; with `nest` all others are under
    this key; `join` changes tensors before they are renamed; `prepare` changes the reference
    itself."""

    architecture: str
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    nest: str | None = None
    join: Callable[[Tensors, Mapping[str, Any]], None] | None = None
    prepare: Callable[[PreTrainedModel], None] | None = None

    def rewrite(self, directory: Path) -> None:
        """Makes a checkpoint of this family of the one in `directory`."""
        config = json.loads((directory / "config.json").read_text())
        tensors = load_file(directory / "model.safetensors")
        if self.join is not None:
            self.join(tensors, config)
        renamed: Tensors = {}
        for name, tensor in tensors.items():
            for pattern, replacement in self.names.items():
                name = re.sub(pattern, replacement, name)
            renamed[name] = tensor
        fields = {self.keys.get(key, key): value for key, value in config.items()}
        if self.nest is not None:
            fields = {self.nest: fields}
        fields |= {"architectures": [self.architecture], **self.fields}
        save_file(renamed, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(fields))


def join_qkv(name: str) -> Callable[[Tensors, Mapping[str, Any]], None]:
    """q, k and v become the linear layer `name`, with their rows one after the other."""

    def join(tensors: Tensors, config: Mapping[str, Any]) -> None:
        del config
        for q in [key for key in tensors if "q_proj" in key]:
            parts = [tensors.pop(q.replace("q_proj", f"{which}_proj")) for which in "qkv"]
            tensors[q.replace("q_proj", name)] = torch.cat(parts)

    return join


def _join_by_head(tensors: Tensors, config: Mapping[str, Any]) -> None:
    """q, k and v become `qkv_proj`: for each KV head the rows of its queries, key and value."""
    heads, hidden = config["num_key_value_heads"], config["hidden_size"]
    for name in [name for name in tensors if name.endswith("q_proj.weight")]:
        parts = [
            tensors.pop(name.replace("q_proj", f"{which}_proj")).reshape(heads, -1, hidden)
            for which in "qkv"
        ]
        joined = torch.cat(parts, dim=1).reshape(-1, hidden)
        tensors[name.replace("q_proj", "qkv_proj")] = joined


def _add(*names: str) -> Callable[[Tensors, Mapping[str, Any]], None]:
    """The checkpoint has the tensors `names`, too, of parts that are not used."""

    def join(tensors: Tensors, config: Mapping[str, Any]) -> None:
        del config
        tensors.update({name: torch.ones(3) for name in names})

    return join


@torch.no_grad()
def _normalize_head(model: PreTrainedModel) -> None:
    head = model.get_output_embeddings().weight
    head.copy_(torch.nn.functional.normalize(head))


def _join_and_grow_head(tensors: Tensors, config: Mapping[str, Any]) -> None:
    """Rows of the head have other norms than 1."""
    join_qkv("W_pack")(tensors, config)
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = head * 2.0 ** torch.randint(-2, 3, (len(head), 1))


BAICHUAN_FIRST = Elsewhere("BaiChuanForCausalLM", join=join_qkv("W_pack"))
BAICHUAN = Elsewhere("BaichuanForCausalLM", join=join_qkv("W_pack"))
BAICHUAN_13B = replace(BAICHUAN, keys={"max_position_embeddings": "model_max_length"})
BAICHUAN2 = Elsewhere(
    "BaichuanForCausalLM",
    fields={"z_loss_weight": 0},
    join=_join_and_grow_head,
    prepare=_normalize_head,
)
# As the first checkpoints of both families were saved.
BLOOM_ALONE = Elsewhere("BloomForCausalLM", names={r"^transformer\.": ""})
GPT2_ALONE = Elsewhere("GPT2LMHeadModel", names={r"^transformer\.": ""})
DECILM = Elsewhere(
    "DeciLMForCausalLM",
    keys={"block_configs": "of_nemotron_nas"},
    fields={"num_key_value_heads_per_layer": [2, 1, 6, 2], "intermediate_size": 256},
)
EXAONE = Elsewhere(
    "ExaoneForCausalLM",
    names={
        r"^model\.embed_tokens": "transformer.wte",
        r"^model\.layers": "transformer.h",
        r"^model\.norm": "transformer.ln_f",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        r"self_attn\.o_proj": "self_attn.out_proj",
        "self_attn": "attn.attention",
        "gate_proj": "c_fc_0",
        "up_proj": "c_fc_1",
        "down_proj": "c_proj",
    },
    keys={
        "num_hidden_layers": "num_layers",
        "hidden_act": "activation_function",
        "rms_norm_eps": "layer_norm_epsilon",
    },
)
# Language models of checkpoints that have encoders: as they were first saved, and later.
GEMMA3 = Elsewhere(
    "Gemma3ForConditionalGeneration", names={"^": "language_model."}, nest="text_config"
)
GEMMA3N = Elsewhere(
    "Gemma3nForConditionalGeneration",
    names={r"^model\.": "model.language_model."},
    nest="text_config",
)
GEMMA4 = Elsewhere(
    "Gemma4ForConditionalGeneration",
    names={r"^model\.": "model.language_model."},
    nest="text_config",
)
FALCON_FIRST = Elsewhere(
    "RWForCausalLM",
    keys={
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "num_kv_heads": "n_head_kv",
        "new_decoder_architecture": "of_falcon",
    },
    fields={"model_type": "RefinedWeb"},
)
STABLELM_FIRST = Elsewhere(
    "StableLMEpochForCausalLM",
    keys={"layer_norm_eps": "norm_eps", "rope_parameters": "of_stablelm"},
    fields={"rope_pct": 0.5, "rope_theta": 1e4},
)
GEMMA4_UNIFIED = replace(
    GEMMA4,
    architecture="Gemma4UnifiedForConditionalGeneration",
    join=_add("vision_embedder.patch_ln1.weight", "embed_audio.embedding_projection.weight"),
)
COHERE_COMPASS = replace(
    GEMMA4,
    architecture="CohereCompassForConditionalGeneration",
    join=_add("visual.pos_embed.weight"),
)
EXAONE4_5 = replace(
    GEMMA4,
    architecture="Exaone4_5_ForConditionalGeneration",
    join=_add("visual.merger.ln_q.weight", "mtp.norm.weight"),
)
MISTRAL_LARGE4 = Elsewhere(
    "MistralLarge4ForConditionalGeneration",
    names={
        r"^model\.embed_tokens": "tok_embeddings",
        r"^model\.rotary_emb\.alpha": "lerope.alpha",
        r"^model\.": "",
        "^lm_head": "output",
        "gate_proj": "w1",
        "down_proj": "w2",
        "up_proj": "w3",
        "o_proj": "wo",
    },
    fields={"model_type": "mistral_large4"},
    nest="text_config",
    join=_add("vision_encoder.ln_pre.weight", "mtp_dspark.norm.weight"),
)
MUSE_GLIMMER = replace(
    GEMMA4,
    architecture="MuseGlimmerForConditionalGeneration",
    join=_add("vision_adapter.fc1.weight", "vision_projection.weight"),
)
MINISTRAL3 = Elsewhere(
    "Mistral3ForConditionalGeneration",
    names={r"^model\.": "model.language_model."},
    nest="text_config",
)
MISTRAL3 = Elsewhere(
    "Mistral3ForConditionalGeneration", names={"^": "language_model."}, nest="text_config"
)
INTERNLM2 = Elsewhere(
    "InternLM2ForCausalLM",
    names={
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        r"self_attn\.qkv_proj": "attention.wqkv",
        r"self_attn\.o_proj": "attention.wo",
        r"mlp\.gate_proj": "feed_forward.w1",
        r"mlp\.up_proj": "feed_forward.w3",
        r"mlp\.down_proj": "feed_forward.w2",
    },
    fields={"bias": False},
    join=_join_by_head,
)
MINIMAX_TEXT_01 = Elsewhere(
    "MiniMaxText01ForCausalLM",
    keys={
        "full_attn_alpha_factor": "layernorm_full_attention_alpha",
        "full_attn_beta_factor": "layernorm_full_attention_beta",
        "linear_attn_alpha_factor": "layernorm_linear_attention_alpha",
        "linear_attn_beta_factor": "layernorm_linear_attention_beta",
        "mlp_alpha_factor": "layernorm_mlp_alpha",
        "mlp_beta_factor": "layernorm_mlp_beta",
    },
    fields={"attn_type_list": [1, 0, 1, 0], "rotary_dim": 20},
)
MINIMAX_M1 = replace(MINIMAX_TEXT_01, architecture="MiniMaxM1ForCausalLM")
AQUILA = Elsewhere("AquilaForCausalLM")
AQUILA_FIRST = Elsewhere("AquilaModel")
TELECHAT3 = Elsewhere("TeleChat3ForCausalLM")
IQUEST_CODER = Elsewhere("IQuestCoderForCausalLM")
LLAMA_FIRST = Elsewhere("LLaMAForCausalLM")
XVERSE = Elsewhere("XverseForCausalLM")
INTERNLM = Elsewhere("InternLMForCausalLM", keys={"attention_bias": "bias"})
INTERNLM3 = Elsewhere(
    "InternLM3ForCausalLM", keys={"attention_bias": "qkv_bias", "mlp_bias": "bias"}
)
PANGU_EMBEDDED = Elsewhere("PanguEmbeddedForCausalLM", keys={"attention_bias": "bias"})
ORION = Elsewhere("OrionForCausalLM", keys={"layer_norm_eps": "rms_norm_eps"})


class _Norm(torch.nn.Module):
    """Gemma's norm with another number added to its weight."""

    def __init__(self, norm: Any, offset: float) -> None:
        super().__init__()
        self.weight, self.eps, self.offset = norm.weight, norm.eps, offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normalized = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return normalized * (self.weight + self.offset)


def _change_gemma3(model: PreTrainedModel) -> None:
    """Gemma 3 without a scale of embeddings, and with PLaMo's norms behind the branches."""
    decoder: Any = model.get_decoder()
    decoder.embed_tokens.embed_scale.fill_(1.0)
    for layer in decoder.layers:
        layer.post_attention_layernorm = _Norm(layer.post_attention_layernorm, 1 / 5)
        layer.post_feedforward_layernorm = _Norm(layer.post_feedforward_layernorm, 5**-1.5)


def _join_for_plamo(tensors: Tensors, config: Mapping[str, Any]) -> None:
    join_qkv("qkv_proj")(tensors, config)
    for name in [key for key in tensors if "gate_proj" in key]:
        parts = [tensors.pop(name), tensors.pop(name.replace("gate_proj", "up_proj"))]
        tensors[name.replace("gate_proj", "gate_up_proj")] = torch.cat(parts)


PLAMO3 = Elsewhere(
    "Plamo3ForCausalLM",
    names={
        r"^model\.layers": "model.layers.layers",
        "self_attn": "mixer",
        "input_layernorm": "pre_mixer_norm",
        "post_attention_layernorm": "post_mixer_norm",
        "pre_feedforward_layernorm": "pre_mlp_norm",
        "post_feedforward_layernorm": "post_mlp_norm",
    },
    keys={
        "rope_parameters": "of_gemma3",
        "sliding_window": "window_size",
        "hidden_activation": "hidden_act",
    },
    fields={"rope_theta": 1e6, "rope_local_theta": 1e4, "sliding_window_pattern": 2},
    join=_join_for_plamo,
    prepare=_change_gemma3,
)
MIMO = Elsewhere("MiMoForCausalLM", join=_add("model.mtp_layers.0.final_layernorm.weight"))
QWEN = Elsewhere(
    "QWenLMHeadModel",
    names={
        r"^model\.embed_tokens": "transformer.wte",
        r"^model\.layers": "transformer.h",
        r"^model\.norm": "transformer.ln_f",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        r"self_attn\.qkv_proj": "attn.c_attn",
        r"self_attn\.o_proj": "attn.c_proj",
        "gate_proj": "w2",
        "up_proj": "w1",
        "down_proj": "c_proj",
    },
    keys={
        "max_position_embeddings": "seq_length",
        "rms_norm_eps": "layer_norm_epsilon",
        "rope_parameters": "of_qwen2",
    },
    fields={"intermediate_size": 2 * 136, "rotary_emb_base": 1e4},
    join=join_qkv("qkv_proj"),
)
CHATGLM = Elsewhere(
    "ChatGLMModel",
    names={
        r"^model\.embed_tokens": "transformer.embedding.word_embeddings",
        r"^model\.layers": "transformer.encoder.layers",
        r"^model\.norm": "transformer.encoder.final_layernorm",
        r"^lm_head": "transformer.output_layer",
        r"self_attn\.qkv_proj": "self_attention.query_key_value",
        r"self_attn\.o_proj": "self_attention.dense",
        "gate_up_proj": "dense_h_to_4h",
        "down_proj": "dense_4h_to_h",
    },
    keys={
        "vocab_size": "padded_vocab_size",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ffn_hidden_size",
        "num_key_value_heads": "multi_query_group_num",
        "head_dim": "kv_channels",
        "max_position_embeddings": "seq_length",
        "rms_norm_eps": "layernorm_epsilon",
        "attention_bias": "add_qkv_bias",
        "rope_parameters": "of_glm",
    },
    fields={"rope_ratio": 2},
    join=join_qkv("qkv_proj"),
)
CHATGLM_LATER = replace(CHATGLM, architecture="ChatGLMForConditionalGeneration")


def _join_keys_and_values(tensors: Tensors, config: Mapping[str, Any]) -> None:
    """k and v become `key_value`, with the rows of each head together; biases but those of the last
    layer of each branch, which are zero, go."""
    for name in [name for name in tensors if name.endswith(_INNER_BIASES)]:
        del tensors[name]
    heads, hidden = config["num_key_value_heads"], config["hidden_size"]
    for name in [name for name in tensors if "k_proj" in name]:
        parts = [tensors.pop(name), tensors.pop(name.replace("k_proj", "v_proj"))]
        by_head = [part.reshape(heads, -1, hidden) for part in parts]
        joined = torch.cat(by_head, dim=1).reshape(-1, hidden)
        tensors[name.replace("k_proj", "key_value")] = joined


_INNER_BIASES = tuple(f"{name}_proj.bias" for name in ("q", "k", "v", "gate", "up"))


@torch.no_grad()
def _without_inner_biases(model: PreTrainedModel) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith(_INNER_BIASES):
            parameter.zero_()


TELECHAT2 = Elsewhere(
    "TeleChat2ForCausalLM",
    names={
        r"^model\.embed_tokens": "transformer.word_embeddings",
        r"^model\.layers": "transformer.h",
        r"^model\.norm": "transformer.ln_f",
        r"self_attn\.q_proj": "self_attention.query",
        r"self_attn\.key_value": "self_attention.key_value",
        r"self_attn\.o_proj": "self_attention.dense",
    },
    keys={
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "ffn_hidden_size",
        "max_position_embeddings": "training_seqlen",
        "rms_norm_eps": "layer_norm_epsilon",
    },
    join=_join_keys_and_values,
    prepare=_without_inner_biases,
)
TELECHAT = replace(TELECHAT2, architecture="TeleChatForCausalLM")
# With Granite's multipliers of 3, and logits divided by 4 / 1.6.
TELEFLM = Elsewhere(
    "TeleFLMForCausalLM",
    fields={"use_mup": True, "input_mult": 3.0, "output_mult": 1.6, "mup_scale_factor": 4.0},
)
# With Granite's multipliers of 3 and 0.6, and logits divided by 96 / 40.
MINICPM = Elsewhere(
    "MiniCPMForCausalLM", fields={"scale_emb": 3.0, "scale_depth": 1.2, "dim_model_base": 40}
)
# The architecture's name in published checkpoints.
MPT = Elsewhere("MPTForCausalLM")


NORM_GROUPS = 4


class _GroupedNorm(torch.nn.Module):
    """Llama's norm, of each of some groups by itself."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = x.unflatten(-1, (NORM_GROUPS, -1))
        normalized = torch.rms_norm(groups, groups.shape[-1:], eps=self.variance_epsilon)
        return self.weight * normalized.flatten(-2)


def _group_norms(model: PreTrainedModel) -> None:
    decoder: Any = model.get_decoder()
    decoder.norm = _GroupedNorm(decoder.norm)
    for layer in decoder.layers:
        layer.input_layernorm = _GroupedNorm(layer.input_layernorm)
        layer.post_attention_layernorm = _GroupedNorm(layer.post_attention_layernorm)


K2_HORIZON = Elsewhere(
    "K2HorizonForCausalLM",
    fields={"layernorm_num_groups": NORM_GROUPS},
    prepare=_group_norms,
)
