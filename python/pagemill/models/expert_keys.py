"""The configuration of experts: their number, the layers that have them, how tokens choose."""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.moe import Experts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, flag, layer_numbers, number, positive_int
from pagemill.ops import ActivationKind, Routing, Scoring


def expert_count(config: Config, default: int) -> int:
    """The number of experts: `num_experts`, or Mixtral's name for it, which transformers 5 writes.

    Raises:
        ModelConfigError: it is not a positive number.
    """
    return positive_int(config, "num_experts", positive_int(config, "num_local_experts", default))


def sparse_layers(config: Config, layers: int, *, dense: int = 0) -> list[bool]:
    """Whether each layer has experts: from `mlp_layer_types`; else all but the first `dense`.

    Raises:
        ModelConfigError: it is not a list of `layers` times dense or sparse.
    """
    value = config.get("mlp_layer_types")
    if value is None:
        return [layer >= dense for layer in range(layers)]
    types = as_list(value) or []
    if len(types) != layers or not all(kind in ("dense", "sparse") for kind in types):
        raise ModelConfigError(f"mlp_layer_types must list {layers} layers, dense or sparse")
    return [kind == "sparse" for kind in types]


def sparse_behind(
    config: Config, layers: int, *, dense: int = 0, key: str = "first_k_dense_replace"
) -> list[bool]:
    """Whether each layer has experts: all but the first, of which `key` states the number, by
    default `dense`.

    Raises:
        ModelConfigError: it is not a number >= 0.
    """
    first = number(config, key, dense, least=0)
    return [layer >= first for layer in range(layers)]


def sparse_by_step(config: Config, layers: int) -> list[bool]:
    """Whether each layer has experts: each `decoder_sparse_step`-th, unless it is in
    `mlp_only_layers`.

    Raises:
        ModelConfigError: these are not numbers of layers.
    """
    dense = layer_numbers(config, "mlp_only_layers")
    step = positive_int(config, "decoder_sparse_step", 1)
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]


def read_routing(config: Config, experts: int, choices: int, *, renormalize: bool) -> Routing:
    """A router that chooses `num_experts_per_tok` of `experts` by softmax; `choices` if it is
    absent.

    Raises:
        ModelConfigError: it takes more than there are.
    """
    chosen = positive_int(config, "num_experts_per_tok", choices)
    if chosen > experts:
        raise ModelConfigError(f"{chosen} of {experts} experts cannot be chosen for a token")
    return Routing(chosen, renormalize=renormalize)


def read_grouped_routing(config: Config, experts: int) -> Routing:
    """DeepSeek V3's router: scores are sigmoids, a group of experts counts as much as its two best.

    Raises:
        ModelConfigError: the numbers do not fit each other.
    """
    routing = replace(
        read_routing(config, experts, 8, renormalize=flag(config, "norm_topk_prob", True)),
        scoring=Scoring.SIGMOID,
        scale=number(config, "routed_scaling_factor", 1.0),
    )
    groups = positive_int(config, "n_group", 1)
    if groups == 1:
        return routing
    size, chosen = experts // groups, positive_int(config, "topk_group", 1)
    if experts % groups or size < 2 or not routing.choices <= size * chosen <= experts:
        raise ModelConfigError(
            f"{routing.choices} of {experts} experts cannot be chosen from {chosen} of {groups}"
            " groups"
        )
    return replace(routing, groups=groups, group_choices=chosen, group_top=2)


def read_grouped_experts(
    config: Config,
    activation: ActivationKind,
    *,
    count: int,
    size: int,
    shared: int = 1,
    count_key: str = "n_routed_experts",
    shared_key: str = "n_shared_experts",
    bias: str = "gate.e_score_correction_bias",
) -> Experts:
    """DeepSeek V3's experts, and those that every token has. `count`, `size` and `shared` are the
    family's defaults: of experts, of the width of one, and of those that every token has; `bias` is
    the weight that balances the experts.

    Raises:
        ModelConfigError: the numbers do not fit each other.
    """
    count = positive_int(config, count_key, count)
    size = positive_int(config, "moe_intermediate_size", size)
    return Experts(
        count,
        size,
        activation,
        read_grouped_routing(config, count),
        bias=bias,
        shared=size * positive_int(config, shared_key, shared),
    )


def read_softmax_experts(
    config: Config,
    activation: ActivationKind,
    *,
    count: int,
    size: int,
    choices: int,
    renormalize: bool,
    count_key: str,
    shared_key: str,
) -> Experts:
    """DeepSeekMoE's experts, chosen by softmax, and those that every token has. `count`, `size`,
    `choices` and `renormalize` are the family's defaults: of experts, of the width of one, of the
    experts of a token, and whether their shares are made to sum to 1.

    Raises:
        ModelConfigError: the numbers do not fit each other.
    """
    count = positive_int(config, count_key, count)
    size = positive_int(config, "moe_intermediate_size", size)
    renormalize = flag(config, "norm_topk_prob", renormalize)
    return Experts(
        count,
        size,
        activation,
        read_routing(config, count, choices, renormalize=renormalize),
        shared=size * positive_int(config, shared_key, 1),
    )
