"""The ops a model is written with; see `docs/program_format.md` for the vocabulary.

Each module `<op>.py` has the typed function that a model calls while it is traced, the shape rule,
and the torch reference that native kernels are tested against. Importing such a module needs no
torch.
"""

from pagemill.ops.activation import ActivationKind, activation
from pagemill.ops.add import add
from pagemill.ops.all_gather import all_gather
from pagemill.ops.all_reduce import all_reduce
from pagemill.ops.apply_adapter import apply_adapter
from pagemill.ops.argmax import argmax
from pagemill.ops.attention import attention
from pagemill.ops.causal_conv import causal_conv
from pagemill.ops.compress_tokens import compress_tokens
from pagemill.ops.concat import concat, concat_all
from pagemill.ops.depthwise_conv import depthwise_conv, depthwise_conv_listed
from pagemill.ops.embedding import embedding
from pagemill.ops.gated_activation import gated_activation
from pagemill.ops.gated_delta import gated_delta
from pagemill.ops.gated_recurrence import gated_recurrence
from pagemill.ops.grouped_linear import grouped_linear
from pagemill.ops.head_linear import head_linear
from pagemill.ops.kv_write import kv_write
from pagemill.ops.latent_attention import latent_attention, latent_attention_with_sums
from pagemill.ops.latent_write import latent_write
from pagemill.ops.layer_norm import layer_norm
from pagemill.ops.linear import linear
from pagemill.ops.matrix_wkv import KeyRemoval, matrix_wkv, matrix_wkv_with_removal
from pagemill.ops.merge_attention import merge_attention
from pagemill.ops.mix_streams import mix_streams
from pagemill.ops.moe_combine import moe_combine
from pagemill.ops.moe_route import Routing, Scoring, moe_route
from pagemill.ops.paged_attention import paged_attention
from pagemill.ops.pool import PoolKind, pool
from pagemill.ops.rms_norm import rms_norm
from pagemill.ops.rotary import rotary
from pagemill.ops.scale import scale, scale_by_position, scale_columns, scale_groups
from pagemill.ops.scatter_rows import scatter_rows
from pagemill.ops.select_rows import select_rows
from pagemill.ops.select_tokens import select_tokens
from pagemill.ops.selective_scan import selective_scan
from pagemill.ops.sparse_relu import sparse_relu
from pagemill.ops.split import split
from pagemill.ops.state_space_scan import state_space_scan
from pagemill.ops.stream_weights import last_stream_weights, stream_weights
from pagemill.ops.unfold import unfold, unfold_listed
from pagemill.ops.wkv import wkv

__all__ = [
    "ActivationKind",
    "KeyRemoval",
    "PoolKind",
    "Routing",
    "Scoring",
    "activation",
    "add",
    "all_gather",
    "all_reduce",
    "apply_adapter",
    "argmax",
    "attention",
    "causal_conv",
    "compress_tokens",
    "concat",
    "concat_all",
    "depthwise_conv",
    "depthwise_conv_listed",
    "embedding",
    "gated_activation",
    "gated_delta",
    "gated_recurrence",
    "grouped_linear",
    "head_linear",
    "kv_write",
    "last_stream_weights",
    "latent_attention",
    "latent_attention_with_sums",
    "latent_write",
    "layer_norm",
    "linear",
    "matrix_wkv",
    "matrix_wkv_with_removal",
    "merge_attention",
    "mix_streams",
    "moe_combine",
    "moe_route",
    "paged_attention",
    "pool",
    "rms_norm",
    "rotary",
    "scale",
    "scale_by_position",
    "scale_columns",
    "scale_groups",
    "scatter_rows",
    "select_rows",
    "select_tokens",
    "selective_scan",
    "sparse_relu",
    "split",
    "state_space_scan",
    "stream_weights",
    "unfold",
    "unfold_listed",
    "wkv",
]
