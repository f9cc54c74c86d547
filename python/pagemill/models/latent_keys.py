"""The configuration of latent attention, which DeepSeek's models and those like them share."""

from __future__ import annotations

from pagemill.layers.latent import LatentShape
from pagemill.layers.rotary import yarn_mscale
from pagemill.models.base import Config
from pagemill.models.config_keys import number, positive_int, rope_parameters

_INNER_NORM_EPS = 1e-6  # of queries and latents, independent of rms_norm_eps


def read_latent(config: Config) -> LatentShape:
    """The sizes of latent attention.

    Raises:
        ModelConfigError: one is no size.
    """
    nope = positive_int(config, "qk_nope_head_dim", 128)
    rope = positive_int(config, "qk_rope_head_dim", 64)
    # null: queries are projected from the hidden state; absent: the default.
    has_query_rank = config.get("q_lora_rank", 1536) is not None
    scale = (nope + rope) ** -0.5
    rotary = rope_parameters(config)
    if rotary.get("rope_type", "default") != "default":
        # The factor that YaRN omits from cosines and sines.
        weight = number(rotary, "mscale_all_dim", 0.0, least=0.0)
        scale *= yarn_mscale(number(rotary, "factor", 1.0), weight) ** 2 if weight else 1.0
    return LatentShape(
        heads=positive_int(config, "num_attention_heads"),
        nope=nope,
        rope=rope,
        value=positive_int(config, "v_head_dim", 128),
        latent=positive_int(config, "kv_lora_rank", 512),
        query=positive_int(config, "q_lora_rank", 1536) if has_query_rank else None,
        scale=scale,
        eps=_INNER_NORM_EPS,
    )
