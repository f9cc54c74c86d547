"""Tables of each head that a layer has, computed from weights when a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagemill.ops.shard import Part

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HeadTables:
    """What the linear layer `module`, which may have a `bias`, makes of `rows` of the matrix
    `table` of `shape`, times `factor`, for some `heads` of `head_dim` features: [heads.size,
    len(rows), head_dim]. With a `norm`, a layer norm that adds `eps` to the variance, rows of the
    table are normalized first. `values` are those of a table that no checkpoint stores."""

    module: str
    table: str
    shape: tuple[int, int]
    rows: Sequence[int]
    heads: Part
    head_dim: int
    factor: float
    norm: str | None = None
    eps: float = 0.0
    bias: bool = True
    values: Floats | None = None

    @property
    def name(self) -> str:
        """That of the result."""
        return f"{self.module}.of_{self.table}.heads{self.heads.begin}-{self.heads.end}"

    @property
    def result_shape(self) -> tuple[int, int, int]:
        return (self.heads.size, len(self.rows), self.head_dim)

    def renamed(self, named: Callable[[str], str]) -> HeadTables:
        """Those of a model that has other names for its tensors."""
        norm = None if self.norm is None else named(self.norm)
        return replace(self, module=named(self.module), table=named(self.table), norm=norm)

    def stored_shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors that they are computed from, and their shapes."""
        width, features = self.shape[1], self.heads.total * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {f"{self.module}.weight": (features, width)}
        if self.values is None:
            shapes[self.table] = self.shape
        if self.bias:
            shapes[f"{self.module}.bias"] = (features,)
        if self.norm is not None:
            shapes |= {f"{self.norm}.weight": (width,), f"{self.norm}.bias": (width,)}
        return shapes

    def computed(self, stored: Mapping[str, Floats]) -> Floats:
        """The result, of the `stored_shapes`' tensors."""
        used, places = np.unique(self.rows, return_inverse=True)  # few of a table that goes far
        values = (stored[self.table] if self.values is None else self.values)[used]
        if self.norm is not None:
            values = values - values.mean(axis=1, keepdims=True)
            variance = np.square(values).mean(axis=1, keepdims=True)
            values = values / np.sqrt(variance + np.float32(self.eps))
            values = values * stored[f"{self.norm}.weight"] + stored[f"{self.norm}.bias"]
        outputs = slice(self.heads.begin * self.head_dim, self.heads.end * self.head_dim)
        made = values @ stored[f"{self.module}.weight"][outputs].T
        if self.bias:
            made = made + stored[f"{self.module}.bias"][outputs]
        made = (made * np.float32(self.factor))[places]
        return made.reshape(len(made), self.heads.size, self.head_dim).transpose(1, 0, 2)
