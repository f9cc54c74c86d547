"""The adapters of a traced program: what may change the results of its linear layers."""

from __future__ import annotations

from pagemill import ops
from pagemill.ops.program import ACT
from pagemill.ops.trace import AdapterTable, Tensor, Trace
from pagemill.weights.adapter_target import AdapterTarget


class AdapterTables:
    """The tables of a trace, one for each of `targets`, in the order of their first use."""

    def __init__(self, trace: Trace, slots: Tensor | None) -> None:
        """`slots` i32 [tokens] is the input that has the adapter of each token; None if the program
        has no adapters."""
        self.targets: list[AdapterTarget] = []
        self._trace = trace
        self._slots = slots
        self._tables: dict[AdapterTarget, AdapterTable] = {}

    def apply(
        self,
        target: AdapterTarget,
        shape: tuple[int, ...],
        x: Tensor,
        y: Tensor,
        experts: Tensor | None = None,
    ) -> Tensor:
        """y, what `target` of this `shape` makes of x, with what the adapters of each token make of
        x; `experts` are those of each row. As it is if the program has no adapters, or the layer
        computes nothing of tokens. Rows of x are tokens, or those that the input of their name
        lists."""
        slots = self._slots
        if slots is None or y.dtype not in (ACT, "f32"):
            return y
        rows: Tensor | None = None
        if x.rows != slots.rows:
            if not self._trace.declares_input(str(x.rows)):
                return y
            rows = self._trace.declared_input(str(x.rows))
        table = self._tables.get(target)
        if table is None:
            self.targets.append(target)
            table = self._tables[target] = self._trace.adapter(target.name, shape)
        return ops.apply_adapter(y, x, slots, table, rows=rows, experts=experts)
