"""Attention among patches in a grid, in whose heads half of the pairs of features rotate by a
patch's row and half by its column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, RotaryTable, bind_grid_rotary, rotary_table
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import number, rope_parameters
from pagemill.ops.trace import Tensor

ROW, COLUMN = 1, 2
"""Dimensions of grid positions."""


def grid_heads(hidden_size: int, heads: int) -> AttentionShape:
    """The shape of `heads` that share `hidden_size` features.

    Raises:
        ModelConfigError: they cannot be divided so.
    """
    head_dim, rest = divmod(hidden_size, heads)
    if rest or head_dim % 4:
        raise ModelConfigError(
            f"{heads} heads of {hidden_size} features have no rows and columns to turn by"
        )
    return AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)


def frequencies(config: Config, features: int) -> Sequence[float]:
    """Those of so many features, by the tower's `rope_theta`."""
    theta = number(rope_parameters(config), "rope_theta", 1e4, least=1.0, most=1e12)
    return rotary_table({"rope_theta": theta}, features, 1).inv_freq


def grid_rotary(
    weights: Weights,
    positions: Tensor,
    by: Mapping[int, Sequence[float]],
    *,
    interleaved: bool = False,
) -> Rotary:
    """Rotates pairs by the frequencies of each dimension, `ROW` and `COLUMN`, in their order;
    `interleaved`: a pair is two features that follow each other."""
    dims = tuple(dim for dim, own in by.items() for _ in own)
    table = RotaryTable(tuple(frequency for own in by.values() for frequency in own))
    return bind_grid_rotary(weights, "inv_freq", table, dims, positions, interleaved=interleaved)
