"""What the metadata of GGUF architectures whose layers keep a state or convolve mean in a
`config.json`, a row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagemill.weights import gguf_computed as computed
from pagemill.weights.gguf_family import (
    APART,
    BALANCED,
    BIAS,
    EXPERT_SIZE,
    EXPERTS,
    GRANITE,
    INTERLEAVED,
    LAYER_NORM,
    ONE_OFF,
    SHARED_SIZE,
    Config,
    GgufFamily,
)
from pagemill.weights.gguf_reader import GgufReader


def _mixer_sizes(reader: GgufReader) -> Config:
    heads, inner = reader.integer("ssm.time_step_rank"), reader.integer("ssm.inner_size")
    return {
        "mamba_d_ssm": inner,
        "mamba_expand": inner // reader.integer("embedding_length"),
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_n_groups": reader.integer("ssm.group_count"),
        "mamba_d_state": reader.integer("ssm.state_size"),
        "mamba_d_conv": reader.integer("ssm.conv_kernel"),
    }


def _falcon_h1(reader: GgufReader, config: Config) -> Config:
    del config
    return _mixer_sizes(reader)


def _granite_hybrid(reader: GgufReader, config: Config) -> Config:
    attends, layers = reader.layers_with("attn_q.weight"), config["num_hidden_layers"]
    # The key that converters use to say so, if it is there.
    rotates = reader.find("rope.scaling.finetuned") is not False
    sizes: Config = {}
    shared, first = reader.tensor("blk.0.ffn_up_shexp.weight"), reader.tensor("blk.0.ffn_up.weight")
    if (wide := shared or first) is not None:
        sizes["shared_intermediate_size"] = wide.shape[0]
    if (experts := reader.tensor("blk.0.ffn_up_exps.weight")) is not None:
        if len(experts.shape) != 3:
            raise reader.error(f"{experts.name} is {list(experts.shape)}, not a matrix per expert")
        sizes["intermediate_size"] = experts.shape[-2]
        sizes["num_local_experts"] = reader.integer("expert_count")
        sizes["num_experts_per_tok"] = reader.integer("expert_used_count")
    return {
        **computed.score_scale(reader, config),
        **_mixer_sizes(reader),
        **sizes,
        "layer_types": ["attention" if i in attends else "mamba" for i in range(layers)],
        "position_embedding_type": "rope" if rotates else "nope",
    }


_NEMOTRON_TENSORS = {
    "M": "ssm_in.weight",
    "*": "attn_q.weight",
    "-": "ffn_up.weight",
    "E": "ffn_up_exps.weight",
}


def _nemotron_h(reader: GgufReader, config: Config) -> Config:
    kinds = dict[int, str]()
    for kind, tensor in _NEMOTRON_TENSORS.items():
        kinds |= dict.fromkeys(reader.layers_with(tensor), kind)
    heads = reader.integer("ssm.time_step_rank")
    return {
        "hybrid_override_pattern": "".join(
            kinds.get(i, "?") for i in range(config["num_hidden_layers"])
        ),
        "mamba_num_heads": heads,
        "mamba_head_dim": reader.integer("ssm.inner_size") // heads,
        "layer_norm_epsilon": reader.number(LAYER_NORM, config["rms_norm_eps"]),
    }


def _layer_kinds(reader: GgufReader, config: Config) -> Config:
    """LFM2's layers by what they have."""
    attends = reader.layers_with("attn_q.weight")
    kinds = [
        "full_attention" if i in attends else "conv" for i in range(config["num_hidden_layers"])
    ]
    return {"layer_types": kinds}


def _qwen3_next(reader: GgufReader, config: Config) -> Config:
    attends, layers = reader.layers_with("attn_q.weight"), config["num_hidden_layers"]
    kinds = ["full_attention" if i in attends else "linear_attention" for i in range(layers)]
    values = reader.integer("ssm.inner_size") // reader.integer("ssm.time_step_rank")
    return {"layer_types": kinds, "linear_value_head_dim": values}


def _qwen3_5(reader: GgufReader, config: Config) -> Config:
    fewer = computed.without_further_layers(reader, config)
    return fewer | _qwen3_next(reader, config | fewer)


def _mamba(reader: GgufReader, config: Config) -> Config:
    """Falcon-Mamba has no name of its own, and no key for the epsilon of its mixers."""
    del config
    if not reader.find("ssm.dt_b_c_rms"):
        return {}
    return {"architectures": ["FalconMambaForCausalLM"], "mixer_rms_eps": 1e-6}


def _mamba2(reader: GgufReader, config: Config) -> Config:
    del config
    heads = reader.integer("ssm.time_step_rank")
    return {"num_heads": heads, "head_dim": reader.integer("ssm.inner_size") // heads}


def _jamba(reader: GgufReader, config: Config) -> Config:
    experts = reader.layers_with("ffn_gate_inp.weight")
    return {
        **_every(reader, "attn_layer", reader.layers_with("attn_q.weight")),
        **_every(reader, "expert_layer", experts),
        "num_experts": reader.integer("expert_count") if experts else 1,
        "mamba_expand": reader.integer("ssm.inner_size") // config["hidden_size"],
    }


def _every(reader: GgufReader, name: str, found: Sequence[int]) -> Config:
    """The first of the layers `found`, and their distance."""
    layers = reader.layers()
    first = found[0] if found else 0
    period = found[1] - first if len(found) > 1 else layers
    if found and list(found) != list(range(first, layers, period)):
        raise reader.error(f"layers {list(found)} are not all {period} apart ({name})")
    return {f"{name}_offset": first, f"{name}_period": period}


def _kimi_linear(reader: GgufReader, config: Config) -> Config:
    """Files state the sizes of latents as those of the one head that reads them."""
    rotary, layers = reader.integer("rope.dimension_count"), config["num_hidden_layers"]
    linear = reader.layers_with("ssm_a")
    shares = reader.tensor(f"blk.{linear[0]}.ssm_beta.weight") if linear else None
    normalizes = reader.find("expert_weights_norm")
    return {
        "layer_types": [
            "linear_attention" if i in linear else "full_attention" for i in range(layers)
        ],
        "linear_num_heads": shares.shape[0] if shares else config["num_attention_heads"],
        "num_key_value_heads": config["num_attention_heads"],
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": reader.integer("attention.key_length_mla") - rotary,
        "v_head_dim": reader.integer("attention.value_length_mla"),
        "head_dim": rotary,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "norm_topk_prob": True if normalizes is None else normalizes,
    }


def _plamo2(reader: GgufReader, config: Config) -> Config:
    """Which layers have attention, in the form of a step. There is no key for windows: those of all
    models are 2,048 tokens."""
    layers, attends = config["num_hidden_layers"], list(reader.layers_with("attn_qkv.weight"))
    if attends == list(range(layers)):
        return {"mamba_enabled": False}
    first = attends[0] if attends else 0
    for step in (2 * first, 2 * first + 1, 2 * layers):
        if step > 1 and attends == (list(range(step // 2, layers, step)) or [layers - 1]):
            return {"mamba_step": step}
    raise reader.error(f"layers with attention are {attends}: no step of PLaMo 2 says so")


_DELTA = {
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "linear_key_head_dim": "ssm.state_size",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
}
_IN_TURN = {"linear_heads_in_turn": True}
_NEMOTRON_H = GgufFamily(
    ("NemotronHForCausalLM",),
    {
        **BALANCED,
        "n_groups": "ssm.group_count",
        "ssm_state_size": "ssm.state_size",
        "conv_kernel": "ssm.conv_kernel",
        "moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length",
        "moe_latent_size": "moe_latent_size",
    },
    {
        **BIAS,
        "use_bias": "ssm_in.bias",
        "use_conv_bias": "ssm_conv1d.bias",
        "mlp_bias": "ffn_up.bias",
    },
    more=_nemotron_h,
)

RECURRENT_FAMILIES: Mapping[str, GgufFamily] = {
    "falcon-h1": GgufFamily(
        ("FalconH1ForCausalLM",),
        # All multipliers are in the weights.
        flags={
            **BIAS,
            "mamba_proj_bias": "ssm_in.bias",
            "projectors_bias": "ssm_out.bias",
            "mamba_conv_bias": "ssm_conv1d.bias",
            "mlp_bias": "ffn_up.bias",
            "mamba_rms_norm": "ssm_norm.weight",
        },
        fixed={"mamba_norm_before_gate": False},
        more=_falcon_h1,
    ),
    "granitehybrid": GgufFamily(
        ("GraniteMoeHybridForCausalLM",),
        GRANITE,
        {
            **BIAS,
            "mamba_proj_bias": "ssm_in.bias",
            "mamba_conv_bias": "ssm_conv1d.bias",
        },
        {**INTERLEAVED, **APART},
        _granite_hybrid,
    ),
    "jamba": GgufFamily(
        ("JambaForCausalLM",),
        {
            "mamba_d_state": "ssm.state_size",
            "mamba_d_conv": "ssm.conv_kernel",
            "mamba_dt_rank": "ssm.time_step_rank",
            "num_experts_per_tok": "expert_used_count",
        },
        {"mamba_proj_bias": "ssm_in.bias", "mamba_conv_bias": "ssm_conv1d.bias"},
        more=_jamba,
    ),
    "kimi-linear": GgufFamily(
        ("KimiLinearForCausalLM",),
        {
            **BALANCED,
            "num_shared_experts": "expert_shared_count",
            "kv_lora_rank": "attention.kv_lora_rank",
            "q_lora_rank": "attention.q_lora_rank",
            "linear_head_dim": "kda.head_dim",
            "linear_conv_kernel_dim": "ssm.conv_kernel",
        },
        more=_kimi_linear,
    ),
    "lfm2": GgufFamily(
        ("Lfm2ForCausalLM",),
        {"conv_L_cache": "shortconv.l_cache", "norm_eps": "attention.layer_norm_rms_epsilon"},
        {"conv_bias": "shortconv.in_proj.bias"},
        {"block_auto_adjust_ff_dim": False},
        _layer_kinds,
    ),
    "lfm2moe": GgufFamily(
        ("Lfm2MoeForCausalLM",),
        {
            **EXPERTS,
            **EXPERT_SIZE,
            "conv_L_cache": "shortconv.l_cache",
            "norm_eps": "attention.layer_norm_rms_epsilon",
            "num_dense_layers": "leading_dense_block_count",
            "routed_scaling_factor": "expert_weights_scale",
        },
        {"conv_bias": "shortconv.in_proj.bias", "use_expert_bias": "exp_probs_b.bias"},
        more=_layer_kinds,
    ),
    "mamba": GgufFamily(
        ("MambaForCausalLM", "FalconMambaForCausalLM"),
        {
            "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
            "intermediate_size": "ssm.inner_size",
            "state_size": "ssm.state_size",
            "conv_kernel": "ssm.conv_kernel",
            "time_step_rank": "ssm.time_step_rank",
        },
        {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"},
        more=_mamba,
        attention=False,
    ),
    "mamba2": GgufFamily(
        ("Mamba2ForCausalLM",),
        {
            "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
            "n_groups": "ssm.group_count",
            "state_size": "ssm.state_size",
            "conv_kernel": "ssm.conv_kernel",
        },
        {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"},
        more=_mamba2,
        attention=False,
    ),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "plamo2": GgufFamily(
        ("Plamo2ForCausalLM",),
        {
            "hidden_size_per_head": "attention.key_length",
            "mamba_d_state": "ssm.state_size",
            "mamba_d_conv": "ssm.conv_kernel",
            "mamba_num_heads": "ssm.time_step_rank",
        },
        fixed=ONE_OFF,
        more=_plamo2,
    ),
    "qwen35": GgufFamily(("Qwen3_5ForCausalLM",), _DELTA, BIAS, {**ONE_OFF, **_IN_TURN}, _qwen3_5),
    "qwen35moe": GgufFamily(
        ("Qwen3_5MoeForCausalLM",),
        {**EXPERTS, **EXPERT_SIZE, **SHARED_SIZE, **_DELTA},
        BIAS,
        {**ONE_OFF, **_IN_TURN},
        _qwen3_5,
    ),
    "qwen3next": GgufFamily(
        ("Qwen3NextForCausalLM",),
        {**EXPERTS, **EXPERT_SIZE, **SHARED_SIZE, **_DELTA},
        BIAS,
        ONE_OFF,
        _qwen3_next,
    ),
    "rwkv7": GgufFamily(
        ("RWKV7ForCausalLM",),
        {
            "norm_eps": LAYER_NORM,
            "head_dim": "wkv.head_size",
            "intermediate_size": "feed_forward_length",
            "decay_low_rank_dim": "attention.decay_lora_rank",
            "a_low_rank_dim": "attention.iclr_lora_rank",
            "v_low_rank_dim": "attention.value_residual_mix_lora_rank",
            "gate_low_rank_dim": "attention.gate_lora_rank",
        },
        attention=False,
    ),
}
