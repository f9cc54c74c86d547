"""The configuration that Step's models have in common: names of published files beside those that
`transformers` writes, and the layers that have experts."""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, as_list
from pagemill.models.expert_keys import sparse_layers
from pagemill.weights.json_file import shown

_PUBLISHED = {
    "num_key_value_heads": ("num_attention_groups",),
    "n_routed_experts": ("moe_num_experts",),
    "num_experts_per_tok": ("moe_top_k",),
    "max_position_embeddings": ("max_position_embedding", "max_seq_len"),
}


def with_other_names(config: Config) -> Config:
    """`config` that also has what published files state, under the names of `transformers`."""
    values = {
        key: value
        for key, names in _PUBLISHED.items()
        for value in [next((config[name] for name in names if name in config), None)]
        if value is not None
    }
    return Defaults(config, values)


def step_sparse_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has experts: from `mlp_layer_types`; or those whose numbers
    `moe_layers_enum` has, as a list or as a text with commas.

    Raises:
        ModelConfigError: neither lists layers.
    """
    if config.get("mlp_layer_types") is not None:
        return sparse_layers(config, layers)
    value = config.get("moe_layers_enum")
    entries = value.split(",") if isinstance(value, str) else as_list(value)
    try:
        numbers = {int(entry) for entry in entries or [] if str(entry).strip()}
    except (TypeError, ValueError):
        numbers = set[int]()
    if not numbers:
        raise ModelConfigError(
            f"moe_layers_enum must list the layers with experts, it is {shown(value)}"
        )
    return [layer in numbers for layer in range(layers)]
