"""The comparison as JSON, as Markdown tables and as a plot."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.compare.turns import Table
from tools.bench.compare.workloads import WORKLOADS, Workload

OURS = "pagemill"  # and the peers whose names begin with it


@dataclass(frozen=True, slots=True)
class Comparison:
    """The measurements and the machine."""

    model: str
    cpu: str
    isa: str
    threads: int
    rounds: int
    date: str
    tables: Sequence[Table]

    @property
    def disturbed(self) -> int:
        """The number of disturbed runs."""
        return sum(run.disturbed for table in self.tables for run in table.runs)


def write(comparison: Comparison, stem: Path) -> list[Path]:
    """Writes `stem`.json, .md and, if matplotlib is installed, .svg. Returns the written paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + ending) for ending in (".json", ".md")]
    paths[0].write_text(json.dumps(dataclasses.asdict(comparison), indent=2) + "\n")
    paths[1].write_text("\n".join(markdown(comparison)) + "\n")
    if importlib.util.find_spec("matplotlib") is not None:
        paths.append(stem.with_name(stem.name + ".svg"))
        _plot(comparison, paths[-1])
    return paths


def markdown(comparison: Comparison) -> Iterator[str]:
    """Yields the lines of the report."""
    yield f"# {comparison.model}: side by side"
    yield ""
    yield f"{comparison.cpu} ({comparison.isa}), {comparison.threads} threads, {comparison.date}."
    rounds = f"Medians of {comparison.rounds} rounds" if comparison.rounds > 1 else "One round"
    yield f"{rounds}, in which all took turns; docs/performance.md"
    yield "says what the columns mean."
    if comparison.disturbed:
        total = sum(len(table.runs) for table in comparison.tables)
        yield ""
        yield f"**Not to be published: other processes disturbed {comparison.disturbed} of {total}"
        yield "runs.**"
    for table in comparison.tables:
        yield ""
        yield f"## {table.number_format}"
        yield ""
        yield from _table(table)


def _measured(table: Table) -> list[Workload]:
    names = {run.workload for run in table.runs}
    return [work for work in WORKLOADS.values() if work.name in names]


def _table(table: Table) -> Iterator[str]:
    work = _measured(table)
    heads = ["", "ready s", "memory GB"]
    for each in work:
        heads.append(f"{each.name} {each.unit}")
        if each.name == "single":
            heads.append("first token ms")
        if each.server_only:
            heads += ["its first token ms", "between tokens p50, p99 ms"]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for peer in table.ready_s:
        cells = [peer, f"{table.ready_s[peer]:.1f}", _number(table.resident_bytes[peer] / 1e9)]
        for each in work:
            cells.append(_number(table.median(peer, each.name)))
            if each.name == "single":
                cells.append(_number(table.median(peer, each.name, "first_token_ms")))
            if each.server_only:
                cells.append(_number(table.median(peer, each.name, "first_token_ms")))
                gaps = [table.median(peer, each.name, f"gap_p{p}_ms") for p in (50, 99)]
                cells.append(", ".join(map(_number, gaps)))
        yield "| " + " | ".join(cells) + " |"
    yield from _ratios(table, work)


def _ratios(table: Table, work: Sequence[Workload]) -> Iterator[str]:
    """The machine's limits, and Pagemill relative to them and to the best other peer."""
    ours = [peer for peer in table.ready_s if peer.startswith(OURS)]
    others = [peer for peer in table.ready_s if peer not in ours]
    rows: dict[str, list[str]] = {"the machine's limit": []}
    for peer in ours:
        rows |= {f"{peer} / limit": [], f"{peer} / best other": []}
    for each in work:
        limit = table.limit(each.name)
        medians = [table.median(peer, each.name) for peer in others]
        best = max((value for value in medians if value is not None), default=None)
        rows["the machine's limit"].append(_number(limit))
        for peer in ours:
            value = table.median(peer, each.name)
            rows[f"{peer} / limit"].append(f"{value / limit:.0%}" if value and limit else "")
            rows[f"{peer} / best other"].append(f"{value / best:.2f}" if value and best else "")
        empty = 2 if each.server_only else 1 if each.name == "single" else 0
        for row in rows.values():
            row += [""] * empty
    for name, row in rows.items():
        yield "| " + " | ".join([name, "", "", *row]) + " |"


def _number(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return ""
    digits = 0 if value >= 99.5 else 1 if value >= 9.95 else 2
    return f"{value:,.{digits}f}"


def _plot(comparison: Comparison, path: Path) -> None:
    """A panel for each workload, a group of bars for each format, the limit as a line."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.rcParams["svg.hashsalt"] = OURS
    names = list(dict.fromkeys(run.workload for t in comparison.tables for run in t.runs))
    peers = list(dict.fromkeys(peer for table in comparison.tables for peer in table.ready_s))
    figure: Any = importlib.import_module("matplotlib.figure").Figure(
        figsize=(3.2 * len(names), 3.6), layout="constrained"
    )
    warning = " (DISTURBED)" if comparison.disturbed else ""
    figure.suptitle(f"{comparison.model}, {comparison.cpu}{warning}")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    width = 0.8 / len(peers)
    for axes, name in zip(panels, names, strict=True):
        axes.set(title=name, ylabel=WORKLOADS[name].unit)
        axes.set_xticks(
            range(len(comparison.tables)), [table.number_format for table in comparison.tables]
        )
        for at, peer in enumerate(peers):
            places = [group - 0.4 + width * (at + 0.5) for group in range(len(comparison.tables))]
            values = [table.median(peer, name) or 0.0 for table in comparison.tables]
            axes.bar(places, values, width, label=peer)
        for group, table in enumerate(comparison.tables):
            if limit := table.limit(name):
                label = None if group else "the machine's limit"
                ends = (group - 0.4, group + 0.4)
                axes.hlines(limit, *ends, colors="black", linestyles="dashed", label=label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(peers) + 1)
    figure.savefig(path, metadata={"Date": None})
