"""How checkpoints of a family name their MTP layer, and which layers of `transformers` are it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Layout:
    """`reference` is what is in front of the reference's layers, and `layers` how many of these the
    model has, in `count` of its configuration; those behind are the MTP layer. `names` are patterns
    of names of their tensors, which replacements follow, and those that match `dropped` are not of
    the layer; `offset` is added to the weights of norms.

    `changes` are those of the reference's configuration, whose lists are cut to the model's layers
    unless files `list_all`; `stated` are fields beside them. `norm` may be that of the model.
    """

    names: Mapping[str, str]
    embedding_norm: str
    state_norm: str
    projection: str
    norm: str
    reference: str = "model.layers"
    layers: int = 4
    depth: int = 1
    count: str = "num_hidden_layers"
    state_first: bool = False
    passes_normalized: bool = False
    reads_normalized: bool = True
    offset: float = 0.0
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    list_all: bool = False
    stated: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Mapping[str, str] = field(default_factory=dict[str, str])
    dropped: str = "(?!)"


_BEHIND = Layout(
    {},
    "model.layers.4.enorm",
    "model.layers.4.hnorm",
    "model.layers.4.eh_proj",
    "model.layers.4.shared_head.norm",
)
_OWN = {"embed": "model.layers.4.embed_tokens", "head": "model.layers.4.shared_head.head"}
_SPARSE = {"mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"]}
_DENSE = {"mlp_layer_types": ["dense", "sparse", "sparse", "dense", "dense"]}
_BESIDE = Layout(
    {r"^model\.layers\.4\.": "mtp.layers.0."},
    "mtp.pre_fc_norm_embedding",
    "mtp.pre_fc_norm_hidden",
    "mtp.fc",
    "mtp.norm",
    passes_normalized=True,
)
_QWEN = replace(
    _BESIDE,
    offset=1.0,
    changes={"layer_types": ["full_attention", "linear_attention"] * 2 + ["full_attention"]},
)
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]}
_FULL = {"layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"]}
_MIMO_V2 = Layout(
    {
        r"^model\.layers\.4\.": "model.mtp.layers.0.",
        r"(mtp\.layers\.0)\.post_attention_layernorm": r"\1.pre_mlp_layernorm",
    },
    "model.mtp.layers.0.enorm",
    "model.mtp.layers.0.hnorm",
    "model.mtp.layers.0.eh_proj",
    "model.mtp.layers.0.final_layernorm",
    passes_normalized=True,
    changes={**_SLIDING, **_DENSE},
)
_NEMOTRON = Layout(
    {r"^backbone\.layers\.4\.": "mtp.layers.0.", r"^backbone\.layers\.5\.": "mtp.layers.1."},
    "mtp.layers.0.enorm",
    "mtp.layers.0.hnorm",
    "mtp.layers.0.eh_proj",
    "mtp.layers.1.final_layernorm",
    reference="backbone.layers",
    depth=2,
    passes_normalized=True,
)
LAYOUTS: Mapping[str, Layout] = {
    "deepseek_v3": replace(_BEHIND, own=_OWN),
    "deepseek_v32": replace(_BEHIND, changes={"mlp_layer_types": ["dense"] + ["sparse"] * 4}),
    "ernie4_5_moe": Layout(
        {r"^model\.layers\.4\.": "model.mtp_block.0."},
        "model.mtp_emb_norm.0",
        "model.mtp_hidden_norm.0",
        "model.mtp_linear_proj.0",
        "model.norm",
        passes_normalized=True,
        changes={"moe_layer_start_index": 0},
    ),
    "exaone_moe": replace(
        _BESIDE, changes={**_FULL, **_DENSE}, stated={"mtp_layer_types": ["full_attention"]}
    ),
    "glm4_moe": _BEHIND,
    "glm4_moe_lite": replace(_BEHIND, own=_OWN, changes=_SPARSE),
    "hy_v3": replace(
        _BEHIND, norm="model.layers.4.final_layernorm", passes_normalized=True, changes=_SPARSE
    ),
    "longcat_flash": Layout(
        {
            r"^model\.layers\.2\.": "model.mtp.layers.0.",
            r"(mtp\.layers\.0)\.mlps\.0\.": r"\1.transformer_layer.mlp.",
            r"(mtp\.layers\.0\.(self_attn|input_layernorm|post_attention_layernorm))\.0\.": r"\1.",
        },
        "model.mtp.layers.0.enorm.m",
        "model.mtp.layers.0.hnorm.m",
        "model.mtp.layers.0.eh_proj",
        "model.mtp.norm",
        layers=2,
        count="num_layers",
        passes_normalized=True,
        own={"embed": "model.mtp.embed_tokens"},
        dropped=r"^model\.mtp\.layers\.0\.(mlp|mlps|\w+(?=\.1))\.",
    ),
    "mellum": replace(_BESIDE, changes={**_SLIDING, **_SPARSE}),
    "mimo": Layout(
        {r"^model\.layers\.4\.": "model.mtp_layers.0."},
        "model.mtp_layers.0.token_layernorm",
        "model.mtp_layers.0.hidden_layernorm",
        "model.mtp_layers.0.input_proj",
        "model.mtp_layers.0.final_layernorm",
        state_first=True,
        passes_normalized=True,
    ),
    "mimo_v2": _MIMO_V2,
    "mimo_v2_published": replace(
        _MIMO_V2,
        changes={
            "layer_types": ["full_attention", "sliding_attention"] * 2 + ["sliding_attention"],
            **_DENSE,
        },
    ),
    "nemotron_h": replace(
        _NEMOTRON,
        changes={
            "layers_block_type": [
                *("linear_attention", "mlp", "full_attention", "mlp"),
                *("mlp", "full_attention"),
            ]
        },
        stated={"mtp_layers_block_type": ["mlp", "full_attention"]},
    ),
    "nemotron_h_experts": replace(
        _NEMOTRON,
        changes={
            "layers_block_type": [
                *("linear_attention", "moe", "full_attention", "moe"),
                *("full_attention", "moe"),
            ]
        },
    ),
    "qwen3_5": _QWEN,
    "qwen3_next": _QWEN,
    "step3p5_published": replace(
        _BEHIND,
        norm="model.layers.4.transformer.shared_head.norm",
        offset=1.0,
        reads_normalized=False,
        changes={
            **_SLIDING,
            **_DENSE,
            "swiglu_limits": [None, 0.4, 0.0, None, None],
            "swiglu_limits_shared": [0.3, 0.5, None, None, None],
        },
        list_all=True,
        own={"head": "model.layers.4.transformer.shared_head.output"},
    ),
}
