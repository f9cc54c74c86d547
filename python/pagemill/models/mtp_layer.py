"""Where a checkpoint has its MTP (multi-token prediction) layer, and what its parts are called: a
row for each layout. The layer itself is the family's (`mtp_layer` of a `Decoder`).

    class MyModel(Decoder):
        mtp = DEEPSEEK_MTP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class MtpLayer:
    """An MTP layer reads the embedding of a token, normalized by `embedding_norm`, beside the final
    hidden state of the token before it, normalized by `state_norm` (or behind it if
    `state_first`), through the linear layer `projection`; the norm in front of the head is `norm`.
    `{}` in a name stands for the number of the layer.

    `layers` is what is in front of the number of the layer, which is 0; None if it follows the
    model's own layers. `prefix` is what is in front of all names of the layer. If it
    `passes_normalized`, the next draft reads its state behind `norm` instead of the one in front of
    it; unless it `reads_normalized`, it reads the model's state in front of the final norm.
    `embedding` and `head` are modules that a checkpoint may have instead of the model's;
    `feed_forward_norm` is that of the layer if it has another name than in the model's.

    `kinds` are the entries of the layer in the lists by layer of a configuration, for one that
    states none: neither in `mtp_<key>` nor behind the entries of the model's layers. `fields` are
    others in which its configuration differs from the model's.
    """

    prefix: str
    embedding_norm: str
    state_norm: str
    projection: str
    norm: str
    layers: str | None = None
    state_first: bool = False
    passes_normalized: bool = False
    reads_normalized: bool = True
    embedding: str | None = None
    head: str | None = None
    feed_forward_norm: str | None = None
    kinds: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    fields: Mapping[str, object] = field(default_factory=dict[str, object])

    def in_gguf(self) -> MtpLayer:
        """The same layer in a GGUF file: behind the model's own, under DeepSeek's names."""
        return replace(
            DEEPSEEK_MTP,
            state_first=self.state_first,
            passes_normalized=self.passes_normalized,
            reads_normalized=self.reads_normalized,
            kinds=self.kinds,
            fields=self.fields,
        )


DEEPSEEK_MTP = MtpLayer(
    prefix="model.layers.{}.",
    embedding_norm="model.layers.{}.enorm",
    state_norm="model.layers.{}.hnorm",
    projection="model.layers.{}.eh_proj",
    norm="model.layers.{}.shared_head.norm",
    embedding="model.layers.{}.embed_tokens",
    head="model.layers.{}.shared_head.head",
    kinds={"indexer_types": "full", "mlp_layer_types": "sparse"},
)
DEEPSEEK_V4_MTP = MtpLayer(  # draft_heads/streams_mtp.py
    prefix="mtp.{}.",
    embedding_norm="mtp.{}.enorm",
    state_norm="mtp.{}.hnorm",
    projection="mtp.{}.h_proj",
    norm="mtp.{}.norm",
    layers="mtp",
    reads_normalized=False,
    kinds={"layer_types": "sliding_attention", "mlp_layer_types": "moe"},
)
ERNIE_MTP = MtpLayer(
    prefix="model.mtp_",
    embedding_norm="model.mtp_emb_norm.{}",
    state_norm="model.mtp_hidden_norm.{}",
    projection="model.mtp_linear_proj.{}",
    norm="model.norm",
    layers="model.mtp_block",
    passes_normalized=True,
    fields={"moe_layer_start_index": 1},
)
EXAONE_MTP = MtpLayer(
    prefix="mtp.",
    embedding_norm="mtp.pre_fc_norm_embedding",
    state_norm="mtp.pre_fc_norm_hidden",
    projection="mtp.fc",
    norm="mtp.norm",
    layers="mtp.layers",
    passes_normalized=True,
    kinds={"layer_types": "sliding_attention", "mlp_layer_types": "dense"},
)
HY_MTP = MtpLayer(
    prefix="model.layers.{}.",
    embedding_norm="model.layers.{}.enorm",
    state_norm="model.layers.{}.hnorm",
    projection="model.layers.{}.eh_proj",
    norm="model.layers.{}.final_layernorm",
    passes_normalized=True,
    kinds={"mlp_layer_types": "sparse"},
)
LONGCAT_MTP = MtpLayer(
    prefix="model.mtp.",
    embedding_norm="model.mtp.layers.{}.enorm.m",
    state_norm="model.mtp.layers.{}.hnorm.m",
    projection="model.mtp.layers.{}.eh_proj",
    norm="model.mtp.norm",
    layers="model.mtp.layers",
    passes_normalized=True,
    embedding="model.mtp.embed_tokens",
)
MELLUM_MTP = replace(
    EXAONE_MTP, kinds={"layer_types": "sliding_attention", "mlp_layer_types": "sparse"}
)
MIMO_MTP = MtpLayer(
    prefix="model.mtp_layers.{}.",
    embedding_norm="model.mtp_layers.{}.token_layernorm",
    state_norm="model.mtp_layers.{}.hidden_layernorm",
    projection="model.mtp_layers.{}.input_proj",
    norm="model.mtp_layers.{}.final_layernorm",
    layers="model.mtp_layers",
    state_first=True,
    passes_normalized=True,
)
MIMO_V2_MTP = MtpLayer(
    prefix="model.mtp.layers.{}.",
    embedding_norm="model.mtp.layers.{}.enorm",
    state_norm="model.mtp.layers.{}.hnorm",
    projection="model.mtp.layers.{}.eh_proj",
    norm="model.mtp.layers.{}.final_layernorm",
    layers="model.mtp.layers",
    passes_normalized=True,
    feed_forward_norm="pre_mlp_layernorm",
    kinds={"layer_types": "sliding_attention", "mlp_layer_types": "dense"},
)
NEMOTRON_MTP = MtpLayer(
    prefix="mtp.",
    embedding_norm="mtp.layers.{}.enorm",
    state_norm="mtp.layers.{}.hnorm",
    projection="mtp.layers.{}.eh_proj",
    norm="mtp.layers.{}.final_layernorm",
    layers="mtp.layers",
    passes_normalized=True,
    kinds={"layers_block_type": "full_attention"},
)
QWEN_MTP = replace(EXAONE_MTP, kinds={"layer_types": "full_attention"})
STEP_MTP = MtpLayer(
    prefix="model.layers.{}.",
    embedding_norm="model.layers.{}.enorm",
    state_norm="model.layers.{}.hnorm",
    projection="model.layers.{}.eh_proj",
    norm="model.layers.{}.shared_head.norm",
    reads_normalized=False,
    head="model.layers.{}.shared_head.output",
    kinds={
        "layer_types": "full_attention",
        "mlp_layer_types": "dense",
        "swiglu_limits": None,
        "swiglu_limits_shared": None,
    },
)
