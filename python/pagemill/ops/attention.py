"""`attention`: attention among the tokens that a request has in the step, without a KV cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import (
    require_act,
    require_equal_shapes,
    require_f32,
    require_rank,
    require_vector,
)
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep

_KEY_BIASES = 2  # among the tables
_SINKS = 6  # among the inputs


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    causal: bool,
    window: int = 0,
    chunked: bool = False,
    prefix: int = 0,
    grid_window: int = 0,
    biases: Tensor | None = None,
    column_biases: Tensor | None = None,
    grid_columns: int = 0,
    key_biases: Tensor | None = None,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """q [T, Hq, D], k, v [T, Hk, D] -> softmax(q k^T scale + bias) v, [T, Hq, D]. With q [T, J, Hq,
    D] and k, v likewise, each token has J rows, which attend as tokens do.

    A token attends to all tokens that its request has in the step; with `causal`, to those up to
    itself and to the first `prefix` ones; with a window only to those less than `window` tokens
    away, or if it is `chunked` to those with the same position // window. With `grid_window` it
    attends to those whose positions in the step's array `grid_positions` lie in its window of so
    many rows and columns: the tokens of a window follow each other. Heads are grouped: Hq is a
    multiple of Hk. `biases` f32 [Hq, 2 reach + 1] are those of each distance from a query to a key,
    from -reach to reach; farther keys have the bias of the reach. As [T, Hq, 2 reach + 1], or with
    J in between, each query has its own. With `column_biases`, likewise with a reach of their own,
    tokens are those of a grid row by row, with `grid_columns` in a row, and have the biases of the
    distance of rows and of that of columns. `key_biases` f32 [T, Hq, 2 reach + 1], with a reach of
    their own, are those that each key has for the distance from a query to it. If soft_cap > 0
    (1e-5 to 1e5), scores, biases included, become soft_cap * tanh(score / soft_cap). `sinks` f32
    [Hq] are logits added to the softmax's denominator.

    Raises:
        ShapeError: the operands or attributes do not fit, or the program has no grid to divide into
            windows.
    """
    _check_operands(q, k, v)
    tables = {"biases": biases, "column_biases": column_biases, "key_biases": key_biases}
    for name, table in tables.items():
        if table is not None:
            _check_biases(name, table, q)
    require_f32("attention", sinks=sinks)
    require_vector("attention", "sinks", sinks, int(q.shape[-2]))
    operands = [q, k, v, *tables.values(), sinks]
    while operands[-1] is None:
        operands.pop()
    if (column_biases is None) != (grid_columns == 0) or (biases is None and grid_columns):
        raise ShapeError("attention: biases, column_biases and grid_columns belong together")
    if key_biases is not None and (grid_columns or key_biases.shape[:-1] != q.shape[:-1]):
        raise ShapeError(
            f"attention: key_biases are {format_shape(key_biases.shape)}, they must be of each row"
            f" and head of q, {format_shape(q.shape[:-1])}, and without grid_columns"
        )
    if (chunked and not window) or (prefix and (window or not causal)):
        raise ShapeError(
            "attention: chunked needs a window, and prefix causal attention without a window"
        )
    if grid_window and (
        causal or window or len(q.shape) > 3 or not q.trace.declares_input("grid_positions")
    ):
        raise ShapeError(
            "attention: grid_window needs attention both ways without a window, and the input"
            " grid_positions"
        )
    attributes: list[tuple[str, float]] = [("scale", scale), ("causal", int(causal))]
    optional = {
        "window": window,
        "chunked": int(chunked),
        "prefix": prefix,
        "grid_window": grid_window,
        "grid_columns": grid_columns,
        "soft_cap": soft_cap,
    }
    attributes += [(name, value) for name, value in optional.items() if value]
    return q.trace.emit("attention", operands, [(q.shape, q.dtype)], attributes)[0]


def _check_operands(q: Tensor, k: Tensor, v: Tensor) -> None:
    require_act("attention", q=q, k=k, v=v)
    rank = 4 if len(q.shape) == 4 else 3
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_rank("attention", name, tensor, rank)
    require_equal_shapes("attention", k, v)
    heads, kv_heads = int(q.shape[-2]), int(k.shape[-2])
    rows = q.shape[:-2] == k.shape[:-2]
    if not rows or q.shape[-1] != k.shape[-1] or heads % kv_heads:
        raise ShapeError(
            f"attention: q is {format_shape(q.shape)}, k and v are {format_shape(k.shape)}"
        )


def _check_biases(name: str, biases: Tensor, q: Tensor) -> None:
    require_f32("attention", **{name: biases})
    of_heads = (q.shape[-2],)
    if biases.shape[:-1] not in (of_heads, q.shape[:-1]) or int(biases.shape[-1]) % 2 == 0:
        raise ShapeError(
            f"attention: {name} are {format_shape(biases.shape)}, they must be {of_heads[0]} rows"
            " of an odd number of distances, or as many of each query"
        )


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, request by request."""
    import torch

    whole = inputs[0]
    assert whole is not None
    of_token = whole.shape[1] if whole.dim() == 4 else 1
    q, k, v = (_rows(tensor) for tensor in inputs[:3] if tensor is not None)
    biases = [None if tensor is None else _rows(tensor) for tensor in inputs[3:_SINKS]]
    sinks = inputs[_SINKS] if len(inputs) > _SINKS else None
    output = torch.empty_like(q)
    groups = q.shape[1] // k.shape[1]
    for span in step.spans:
        rows = slice(span.begin * of_token, span.end * of_token)
        seen = _seen(attributes, step, rows, q.device)
        added = _biases(biases, attributes, rows, q.device)
        attended = _attend(
            q[rows].transpose(0, 1),
            k[rows].transpose(0, 1).repeat_interleave(groups, 0),
            v[rows].transpose(0, 1).repeat_interleave(groups, 0),
            seen,
            added,
            sinks,
            attributes,
        )
        output[rows] = attended.transpose(0, 1)
    return (output.reshape(whole.shape),)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor,
    added: torch.Tensor,
    sinks: torch.Tensor | None,
    attributes: Mapping[str, float],
) -> torch.Tensor:
    """q, k, v [Hq, rows, D] -> [Hq, rows, D]. `added` to scores are biases."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    soft_cap = attributes.get("soft_cap", 0.0)
    if sinks is None and not soft_cap:
        mask = added.to(q.dtype).expand(len(q), *seen.shape).masked_fill(~seen, -torch.inf)
        return scaled_dot_product_attention(q, k, v, mask, scale=attributes["scale"])
    scores = q.float() @ k.float().mT * attributes["scale"] + added
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, len(seen), 1)], -1)
    weights = scores.softmax(-1)[..., : len(seen)]
    return (weights @ v.float()).to(q.dtype)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """[T, J, ...] as [J T, ...], if tokens have several rows."""
    return tensor.flatten(0, 1) if tensor.dim() == 4 else tensor


def _seen(
    attributes: Mapping[str, float], step: TorchStep, rows: slice, device: torch.device
) -> torch.Tensor:
    """Which keys each row of a request sees, [rows, rows]."""
    import torch

    positions = torch.arange(rows.stop - rows.start, device=device)
    distance = positions[:, None] - positions
    seen = torch.ones_like(distance, dtype=torch.bool)
    if window := int(attributes.get("window", 0)):
        chunks = positions // window
        chunked = attributes.get("chunked", 0.0) != 0.0
        seen = chunks[:, None] == chunks if chunked else distance.abs() < window
    if attributes.get("causal", 1.0) != 0.0:
        seen = seen & ((distance >= 0) | (positions < int(attributes.get("prefix", 0))))
    if side := int(attributes.get("grid_window", 0)):
        sides = torch.tensor([1, side, side], device=device)
        cells = step.inputs["grid_positions"][rows] // sides
        seen = (cells[:, None] == cells).all(-1)
    return seen


def _biases(
    tables: Sequence[torch.Tensor | None],
    attributes: Mapping[str, float],
    rows: slice,
    device: torch.device,
) -> torch.Tensor:
    """What is added to the scores of the rows of a request, [heads, rows, rows]."""
    import torch

    positions = torch.arange(rows.stop - rows.start, device=device)
    width = int(attributes.get("grid_columns", 0))
    places = (positions // width, positions % width) if width else (positions, positions)
    total = torch.zeros((), device=device)
    for index, table in enumerate(tables):
        if table is None:
            continue
        of_keys = index == _KEY_BIASES
        place = positions if of_keys else places[index]
        reach = table.shape[-1] // 2
        # From each row that has biases to the others.
        distance = place[:, None] - place if of_keys else place - place[:, None]
        entries = reach + distance.clamp(-reach, reach)
        if table.dim() == 2:
            total = total + table[:, entries]
        else:
            of_rows = table[rows].transpose(0, 1)
            added = of_rows.gather(2, entries.expand(len(of_rows), -1, -1))
            total = total + (added.mT if of_keys else added)
    return total
