"""Where a checkpoint has its MTP (multi-token prediction) layer, and what its parts are called: a
row for each layout. The layer itself is one of the family's.

    class MyModel(Decoder):
        mtp = DEEPSEEK_MTP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MtpLayer:
    """An MTP layer reads the embedding of a token, normalized by `embedding_norm`, beside the final
    hidden state of the token before it, normalized by `state_norm` (or behind it if
    `state_first`), through the linear layer `projection`; the norm in front of the head is `norm`.
    `{}` in a name stands for the number of the layer.

    `layers` is what is in front of the number of the layer, which is 0; None if it follows the
    model's own layers. `prefix` is what is in front of all names. If it `passes_normalized`, the
    next draft reads its state behind `norm` instead of the one in front of it. `embedding` and
    `head` are modules that a checkpoint may have instead of the model's. `kinds` are the entries
    of the layer in the lists of kinds of layers that a configuration has.
    """

    prefix: str
    embedding_norm: str
    state_norm: str
    projection: str
    norm: str
    layers: str | None = None
    state_first: bool = False
    passes_normalized: bool = False
    embedding: str | None = None
    head: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])


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
QWEN_MTP = MtpLayer(
    prefix="mtp.",
    embedding_norm="mtp.pre_fc_norm_embedding",
    state_norm="mtp.pre_fc_norm_hidden",
    projection="mtp.fc",
    norm="mtp.norm",
    layers="mtp.layers",
    passes_normalized=True,
    kinds={"layer_types": "full_attention"},
)
