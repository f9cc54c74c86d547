"""The terminal page of `pagemill top`; the only module that needs textual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Footer, Static

from pagemill.observe.top import text
from pagemill.observe.top.figures import Figures, Quantiles
from pagemill.observe.top.followed import FollowedServer
from pagemill.observe.top.graph import graph

_GRAPH_LINES = 3
_NARROW = 90  # columns of the terminal below which two tiles stand beside each other
_SERVER_COLUMNS = (
    *("server", "model", "state", "running", "waiting", "in/s", "out/s", "KV", "hits"),
    *("first token p99", "restarts"),
)
_TENANT_COLUMNS = ("tenant", "requests/s", "tokens in/s", "tokens out/s")


@dataclass(frozen=True, slots=True)
class _Row:
    """A tile: its title, its number, and what its graph shows."""

    title: str
    value: Callable[[Figures], str]
    point: Callable[[Figures], float]
    top: float = 0.0
    """Value of a full column of the graph; 0: the largest value."""


def _p50(times: Quantiles | None) -> float:
    return 0.0 if times is None else times.p50


_TILES = (
    _Row("tokens out/s", lambda f: text.count(f.generation_tokens), lambda f: f.generation_tokens),
    _Row("tokens in/s", lambda f: text.count(f.prompt_tokens), lambda f: f.prompt_tokens),
    _Row(
        "requests running · waiting",
        lambda f: f"{f.running} · {f.waiting}",
        lambda f: float(f.running + f.waiting),
    ),
    _Row("KV cache in use", lambda f: text.share(f.kv_usage), lambda f: f.kv_usage, 1.0),
    _Row(
        "prefix cache hits",
        lambda f: text.share(f.prefix_hits),
        lambda f: f.prefix_hits or 0.0,
        1.0,
    ),
    _Row(
        "drafts accepted",
        lambda f: text.share(f.drafts_accepted),
        lambda f: f.drafts_accepted or 0.0,
        1.0,
    ),
    _Row(
        "first token p50 / p99",
        lambda f: text.times(f.time_to_first_token),
        lambda f: _p50(f.time_to_first_token),
    ),
    _Row(
        "between tokens p50 / p99",
        lambda f: text.times(f.between_tokens),
        lambda f: _p50(f.between_tokens),
    ),
    _Row("in queue p50 / p99", lambda f: text.times(f.queue_time), lambda f: _p50(f.queue_time)),
)


class _Tile(Static):
    """A number and its graph."""

    def __init__(self, row: _Row) -> None:
        super().__init__(classes="tile")
        self._row = row
        self.border_title = row.title

    def show(self, server: FollowedServer) -> None:
        """Shows the figures of `server`; a dash for the number of one that is away."""
        now = None if server.away else server.now
        value = text.NOTHING if now is None else self._row.value(now)
        points = [self._row.point(point) for point in server.points]
        lines = graph(points, self.content_size.width, _GRAPH_LINES, self._row.top)
        self.update(Content.assemble((value, "bold"), "\n", (lines, "$accent")))


class TopPage(App[None]):
    """Servers in a table, and the figures of the one that is selected."""

    TITLE = "pagemill top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("p", "pause", "Pause"),
        Binding("r", "read", "Read now"),
    ]
    CSS = """
    #servers { height: auto; max-height: 10; }
    #notice { height: auto; padding: 0 1; color: $text-error; display: none; }
    #notice.shown { display: block; }
    #tiles { grid-size: 3; grid-rows: 6; height: auto; }
    #tiles.narrow { grid-size: 2; }
    .tile { border: round $primary; padding: 0 1; height: 6; }
    .away .tile { opacity: 50%; }
    #tenants { height: auto; margin: 1 0 0 0; }
    """

    def __init__(self, servers: Sequence[FollowedServer], interval_s: float) -> None:
        super().__init__()
        self._servers = servers
        self._interval_s = interval_s
        self._is_paused = False

    def compose(self) -> ComposeResult:
        """The parts of the page, from top to bottom."""
        yield DataTable(id="servers", cursor_type="row")
        yield Static(id="notice", markup=False)
        with VerticalScroll():
            yield Grid(*(_Tile(row) for row in _TILES), id="tiles")
            yield DataTable(id="tenants", show_cursor=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to read."""
        servers = self._table("servers")
        for title in _SERVER_COLUMNS:
            servers.add_column(title, key=title)
        for server in self._servers:
            cells = [server.name, *[""] * (len(_SERVER_COLUMNS) - 1)]
            servers.add_row(*map(Text, cells), key=server.name)
        self._table("tenants").add_columns(*_TENANT_COLUMNS)
        servers.focus()
        for server in self._servers:
            self.run_worker(self._follow(server))

    def on_resize(self, event: events.Resize) -> None:
        """Two tiles beside each other if the terminal is narrow."""
        self.query_one("#tiles").set_class(event.size.width < _NARROW, "narrow")
        self.call_after_refresh(self._show_selected)

    def on_data_table_row_highlighted(self) -> None:
        """Another server was selected."""
        self._show_selected()

    def action_pause(self) -> None:
        """Stops or goes on reading."""
        self._is_paused = not self._is_paused
        self.sub_title = "paused" if self._is_paused else ""
        self._show_selected()

    async def action_read(self) -> None:
        """Reads every server now."""
        await asyncio.gather(*(self._poll(server) for server in self._servers))

    async def _follow(self, server: FollowedServer) -> None:
        while True:
            if not self._is_paused:
                await self._poll(server)
            await asyncio.sleep(self._interval_s)

    async def _poll(self, server: FollowedServer) -> None:
        await asyncio.to_thread(server.poll)
        servers = self._table("servers")
        for title, cell in zip(_SERVER_COLUMNS, _server_cells(server), strict=True):
            servers.update_cell(server.name, title, Text(cell), update_width=True)
        if server is self._selected:
            self._show_selected()

    @property
    def _selected(self) -> FollowedServer:
        return self._servers[max(self._table("servers").cursor_row, 0)]

    def _show_selected(self) -> None:
        server = self._selected
        notice = f"{server.name} is away: {server.away}" if server.away else ""
        if self._is_paused:
            notice = "paused: p goes on"
        shown = self.query_one("#notice", Static)
        shown.update(notice)
        shown.set_class(bool(notice), "shown")
        self.query_one("#tiles").set_class(bool(server.away), "away")
        for tile in self.query(_Tile):
            tile.show(server)
        tenants = self._table("tenants")
        tenants.clear()
        if server.now is not None and not server.away:
            # Not as strings, which may hold markup: clients choose the names.
            tenants.add_rows([map(Text, row) for row in text.tenant_rows(server.now)])
        tenants.display = tenants.row_count > 0

    def _table(self, name: str) -> DataTable[Text]:
        return cast(DataTable[Text], self.query_one(f"#{name}", DataTable))


def _server_cells(server: FollowedServer) -> list[str]:
    now = None if server.away else server.now
    if now is None:
        return [server.name, "", server.state, *[text.NOTHING] * (len(_SERVER_COLUMNS) - 3)]
    first = now.time_to_first_token
    return [
        server.name,
        text.model_name(now.model),
        server.state,
        str(now.running),
        str(now.waiting),
        text.count(now.prompt_tokens),
        text.count(now.generation_tokens),
        text.share(now.kv_usage),
        text.share(now.prefix_hits),
        text.NOTHING if first is None else text.duration(first.p99),
        str(now.restarts),
    ]
