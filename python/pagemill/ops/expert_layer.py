"""How adapters name a layer that each expert of a mixture has."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.ops.shard import Part


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """A layer of the `experts` that a rank has: the modules `<container>.<number>.<module>`, or
    rows of `parameter`, which the module `owner` has for all experts: every `step`-th of `rows`,
    whose total is how many the parameter has. It makes something of `features`. `turned`: adapters
    take the rows of the stored parameter, [experts, features, rows], for its outputs."""

    experts: Part
    container: str
    module: str
    owner: str
    parameter: str
    rows: Part
    features: int
    step: int = 1
    turned: bool = False

    @property
    def name(self) -> str:
        """That of the layer in all experts."""
        return f"{self.container}.*.{self.module}"

    def expert(self, number: int) -> str:
        """The module of one expert."""
        return f"{self.container}.{number}.{self.module}"
