"""What several methods tell the operator."""

STATIC_ACTIVATIONS = (
    "the checkpoint's scales of activations (input_scale) are not used: activations are scaled row"
    " by row, which is finer"
)
QUANTIZED_ACTIVATIONS = (
    "the checkpoint was made for quantized activations; they are rounded as --activation-dtype says"
)
CACHE_SCALES = (
    "the checkpoint was made for a KV cache of 8 bits, with scales that are not used: int8 caches"
    " have a scale for each token and head, fp8_e4m3 caches none; see --kv-cache-dtype"
)
