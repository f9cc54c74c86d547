"""The layers of a program that adapters may change."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.shard import Part


@dataclass(frozen=True, slots=True)
class AdapterTarget:
    """The layer `module`, or those of its rows or columns that the program computes in one op;
    `name` is that of the program's adapter."""

    name: str
    module: str
    rows: Part | None = None
    columns: Part | None = None
    embedding: bool = False
    scale: float = 1.0
    """What the layer makes is multiplied by this."""
    experts: ExpertLayer | None = None
    """`module` stands for the layer of each expert."""

    @classmethod
    def of(
        cls,
        module: str,
        rows: Part | None,
        columns: Part | None,
        *,
        embedding: bool = False,
        scale: float = 1.0,
        experts: ExpertLayer | None = None,
    ) -> AdapterTarget:
        """The target of these rows and columns; a part that is everything is None."""
        rows, columns = (None if part is None or part.whole else part for part in (rows, columns))
        name = f"adapter.{module}"
        if rows is not None:
            name += f":rows:{rows.begin}:{rows.end}"
        if columns is not None:
            name += f":columns:{columns.begin}:{columns.end}"
        return cls(name, module, rows, columns, embedding, scale, experts)
