"""Notes of several methods for the operator."""

STATIC_ACTIVATIONS = (
    "the checkpoint's scales of activations (input_scale) are not used: activations are scaled row"
    " by row, which is finer"
)
QUANTIZED_ACTIVATIONS = (
    "the checkpoint was made for quantized activations; they are rounded as --activation-dtype says"
)
CACHE_SCALES = (
    "the checkpoint was made for a KV cache of 8 bits: --kv-cache-dtype fp8 stores keys and values"
    " by the checkpoint's scales; int8 has a scale of its own for each token and head"
)
UNCONVERTED = (
    "only in models that are served or generate: `pagemill export` and EAGLE heads read matrices as"
    " they are stored, so give them the model as it was before it was quantized"
)
OTHER_SCALES = (
    "the checkpoint's scales of queries and attention weights, and zero points of keys, are not"
    " used: attention does not quantize them"
)
