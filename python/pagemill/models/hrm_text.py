"""HRM-Text: two stacks of Llama's layers, with gates of the attention's result and norms without
weights, that run in turns: in each of `H_cycles`, `L_cycles` times the low one, of the sum of what
both stacks have made last, then once the high one. Tokens of a prompt see each other (`prefix_lm`).

Weights: `model.{L_module,H_module}.layers.<i>.{attn.{gqkv_proj,o_proj}, mlp.{gate_up_proj,
down_proj}}`, of which gqkv_proj has the rows of gates, q, k and v one after the other;
`model.embed_tokens`; `model.z_L_init`, what the low stack has made before it first runs; `lm_head`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import Config, ModelConfigError, ModelTraits, StepInputs
from pagemill.models.config_keys import flag, layer_loops, number, positive_int, refuse
from pagemill.models.decoder import Decoder
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


class HrmTextModel(Decoder):
    """One HRM-Text model. A layer of each run of a stack counts as one of its own, with its own
    cache."""

    scales_media = True

    def __init__(self, config: Config) -> None:
        refuse(config, "attention_bias")
        super().__init__(config)
        self._prefix_lm = flag(config, "prefix_lm", True)
        self._stored = positive_int(config, "num_layers_per_stack", self.sizes.layers)
        self._low_runs = layer_loops(config, "L_cycles", 3, self._stored)
        of_cycle = (self._low_runs + 1) * self._stored
        layers = of_cycle * layer_loops(config, "H_cycles", 2, of_cycle)
        if config.get("num_layers_per_stack") is not None and self.sizes.layers != layers:
            raise ModelConfigError(
                f"num_hidden_layers={self.sizes.layers} must count the layers of all runs,"
                f" {layers}, or num_layers_per_stack be absent"
            )
        heads = self.sizes.heads
        self.sizes = replace(self.sizes, layers=layers, kv_heads=heads)
        self.rotary = (self.rotary[0],) * layers
        self.windows = (0,) * layers
        self.mlp_parts = MlpParts(up=("gate_up_proj",), bias=flag(config, "mlp_bias", False))
        default = 1 / number(config, "initializer_range", 0.02, least=1e-6)
        self.embedding_scale = number(config, "embedding_scale", default)

    @property
    def traits(self) -> ModelTraits:
        return replace(super().traits, causal=not self._prefix_lm)

    def prefix(self, layer: int) -> str:
        run, index = divmod(layer, self._stored)
        return f"model.{'H' if self._is_high(run) else 'L'}_module.layers.{index}"

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(weights, name, x, self.sizes.norm_eps, weight=False)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name = f"{self.prefix(layer)}.attn"
        shape = attention.divide(weights, self.sizes.attention(), f"{name}.o_proj")
        own = shape.features(shape.heads)
        row_shape = (own.size // shape.head_dim, shape.head_dim)

        def project(index: int) -> Tensor:
            first = index * own.total
            rows = Part(first + own.begin, first + own.end, 4 * own.total)
            return linear(weights, f"{name}.gqkv_proj", x, row_shape, rows=rows)

        gate, q, k, v = (project(index) for index in range(4))
        q, k = rotary(q, k)
        y = attention.attend(q, k, v, shape, f"kv{layer}", weights.kv_scales(name))
        y = ops.gated_activation(gate, y, ops.ActivationKind.SIGMOID)
        return attention.output(weights, f"{name}.o_proj", y, shape, x.width)

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        high = self.embed(weights, inputs)
        low = weights.vector("model.z_L_init", self.sizes.hidden_size)

        def layer(i: int, x: Tensor) -> Tensor:
            nonlocal high, low
            run, index = divmod(i, self._stored)
            if index == 0:  # x is what the run before has made
                if self._is_high(run - 1):
                    high = x
                else:
                    low = x
                x = ops.add(high, low)
            x = self.layer(weights, i, x, rotary[i])
            is_last = index == self._stored - 1
            return self.norm(weights, "final_norm", x) if is_last else x

        return stack(weights, high, self.sizes.layers, layer)

    def _is_high(self, run: int) -> bool:
        return run % (self._low_runs + 1) == self._low_runs
