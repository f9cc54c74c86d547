"""M-RoPE: each pair of a head rotates by one of a token's positions in time, row and column, as
`mrope_section` of the rotary parameters says.

    table = make_rotary_table(without_sections(config), head_dim)
    dims = dims_of_pairs(config, len(table.inv_freq))     # for layers.rotary.bind_grid_rotary
"""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, flag, rope_parameters
from pagemill.ops.program import GRID_DIMS
from pagemill.weights.json_file import shown

_SECTIONS = "mrope_section"


def has_sections(config: Config) -> bool:
    """Whether the rotary parameters of `config` are those of M-RoPE."""
    return rope_parameters(config).get(_SECTIONS) is not None


def without_sections(config: Config) -> Config:
    """`config` with the rotary parameters of text, whose three positions are equal."""
    rope = dict(rope_parameters(config))
    rope.pop(_SECTIONS, None)
    # Older configurations list M-RoPE as a scaling rule.
    if rope.get("rope_type") == "mrope":
        rope["rope_type"] = "default"
    return {**config, "rope_parameters": rope}


def dims_of_pairs(config: Config, pairs: int) -> list[int]:
    """The position dimension by which each pair rotates: the sections have the numbers of pairs for
    time, rows and columns, which follow each other, or take turns while rows and columns last.

    Raises:
        ModelConfigError: the rotary parameters have no such numbers.
    """
    rope = rope_parameters(config)
    in_turn = flag(rope, "mrope_interleaved", False)
    counts = as_list(rope.get(_SECTIONS)) or []
    valid = len(counts) == GRID_DIMS and all(type(n) is int and n >= 0 for n in counts)
    if not valid or sum(counts) != pairs:
        raise ModelConfigError(
            f"{_SECTIONS} must have {GRID_DIMS} numbers whose sum is {pairs}, it is"
            f" {shown(rope.get(_SECTIONS))}"
        )
    if not in_turn:
        return [dim for dim, count in enumerate(counts) for _ in range(count)]
    turns = (divmod(pair, GRID_DIMS) for pair in range(pairs))
    return [dim if turn < counts[dim] else 0 for turn, dim in turns]
