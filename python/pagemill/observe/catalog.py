"""All metrics of a server in one list, for the manual and for tests of dashboards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.observe import adapter_requests, engine_families, restarts
from pagemill.observe.compatibility import REFERENCE_NAMES
from pagemill.observe.families import FAMILIES, MODEL_LABELS
from pagemill.observe.work_families import ESTIMATES

_SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A metric without prefix; `reference` is its name in the reference system, "" if it has
    none."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    reference: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names that queries use, without prefix."""
        return tuple(self.name + suffix for suffix in _SUFFIXES[self.kind])


def catalog(engine_fields: Sequence[tuple[str, str, str, str]]) -> list[CatalogEntry]:
    """All metrics by name.

    Args:
        engine_fields: the native table of statistics, `EngineSnapshot.fields`.
    """
    rows = [(row.name, row.kind, row.labels, row.help) for row in FAMILIES]
    for derived in engine_families.DERIVED:
        labels = (*MODEL_LABELS, derived.label) if derived.label else MODEL_LABELS
        rows.append((derived.name, derived.kind, labels, derived.help))
    rows += [(row.name, "counter", MODEL_LABELS, row.help) for row in ESTIMATES]
    rows += [(name, kind, MODEL_LABELS, text) for _, kind, name, text in engine_fields if name]
    name, text = engine_families.CACHE_CONFIG_NAME, engine_families.CACHE_CONFIG_HELP
    rows.append((name, "gauge", (*MODEL_LABELS, "num_gpu_blocks"), text))
    rows.append((adapter_requests.NAME, "gauge", adapter_requests.LABELS, adapter_requests.HELP))
    rows.append((restarts.NAME, "counter", (restarts.LABEL,), restarts.HELP))
    return [
        CatalogEntry(name, kind, labels, text.rstrip("."), REFERENCE_NAMES.get(name, ""))
        for name, kind, labels, text in sorted(rows)
    ]
