"""Reads docs/features.md: its rows, its counts and its links, and says what is wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.features.build_targets import defined_tests

STATES = ("yes", "partly", "no")

_COLUMNS = 5
_COUNT = re.compile(r"\| \[(.+)\]\(#.+\) \| (\d+) \| (\d+) \| (\d+) \|")
_TOTAL = re.compile(r"\| \*\*all\*\* \| (\d+) \| (\d+) \| (\d+) \|")
_LABEL = re.compile(r"`//([\w/]*):(\w+)`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_PULL_REQUESTS = re.compile(r"(#\d+( #\d+)*)?")


@dataclass(frozen=True, slots=True)
class Row:
    """A feature. `tests` is the cell as it is written."""

    subsystem: str
    feature: str
    state: str
    where: str
    tests: str
    pull_requests: str


@dataclass(frozen=True, slots=True)
class Page:
    """`counts` and `all_counts` are the table at the top: numbers of `STATES`, by subsystem."""

    rows: tuple[Row, ...]
    counts: dict[str, tuple[int, ...]]
    all_counts: tuple[int, ...]
    links: tuple[str, ...]


def read_page(text: str) -> Page:
    """The page.

    Raises:
        ValueError: a line of a table does not have as many cells as its head.
    """
    rows: list[Row] = []
    counts: dict[str, tuple[int, ...]] = {}
    total: tuple[int, ...] = ()
    subsystem = ""
    for line in text.splitlines():
        if line.startswith("## "):
            subsystem = line.removeprefix("## ")
        elif match := _COUNT.fullmatch(line):
            counts[match[1]] = tuple(int(number) for number in match.groups()[1:])
        elif match := _TOTAL.fullmatch(line):
            total = tuple(int(number) for number in match.groups())
        elif subsystem and line.startswith("| ") and not line.startswith("| feature |"):
            rows.append(_row(subsystem, line))
    return Page(tuple(rows), counts, total, tuple(_LINK.findall(text)))


def _row(subsystem: str, line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) != _COLUMNS:
        raise ValueError(f"{len(cells)} cells instead of {_COLUMNS}: {line}")
    return Row(subsystem, *cells)


def row_errors(page: Page, root: Path) -> Iterator[str]:
    """One line for each mistake of a row."""
    tests: dict[str, set[str]] = {}
    for name, number in Counter(row.feature for row in page.rows).items():
        if number > 1:
            yield f"{name}: {number} rows"
    for row in page.rows:
        labels = _LABEL.findall(row.tests)
        if row.state not in STATES:
            yield f"{row.feature}: the state {row.state!r} is none of {', '.join(STATES)}"
        if (row.state == "no") == bool(labels):
            yield f"{row.feature}: {row.state} with {len(labels)} tests"
        if row.state != "no" and not _LINK.search(row.where):
            yield f"{row.feature}: {row.state} without a link"
        if (row.state == "partly") != ("missing: " in row.where):
            yield f"{row.feature}: what is missing is said of `partly` and of nothing else"
        if _LABEL.sub("", row.tests).strip():
            yield f"{row.feature}: the tests are not labels: {row.tests}"
        if not _PULL_REQUESTS.fullmatch(row.pull_requests):
            yield f"{row.feature}: not numbers of pull requests: {row.pull_requests}"
        for package, name in labels:
            if name not in _tests_of(package, root, tests):
                yield f"{row.feature}: there is no test //{package}:{name}"


def _tests_of(package: str, root: Path, known: dict[str, set[str]]) -> set[str]:
    if package not in known:
        folder = root / package
        known[package] = defined_tests(folder) if (folder / "BUILD.bazel").is_file() else set()
    return known[package]


def link_errors(page: Page, path: Path) -> Iterator[str]:
    """One line for each link that leads nowhere; `path` is the page's own."""
    for link in sorted(set(page.links)):
        file, _, heading = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists():
            yield f"{link}: there is no such file"
        elif heading and heading not in _headings(target.read_text("utf-8")):
            yield f"{link}: there is no such heading"


def _headings(text: str) -> set[str]:
    """The anchors that headings of Markdown get on web pages."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def count_errors(page: Page) -> Iterator[str]:
    """The lines that the table at the top should have, for each that is wrong."""
    numbers = Counter((row.subsystem, row.state) for row in page.rows)
    subsystems = dict.fromkeys(row.subsystem for row in page.rows)
    for name in subsystems | page.counts:
        counted = tuple(numbers[name, state] for state in STATES)
        if page.counts.get(name) != counted:
            yield f"| {name} | " + " | ".join(map(str, counted)) + " |"
    total = tuple(sum(numbers[name, state] for name in subsystems) for state in STATES)
    if page.all_counts != total:
        yield "| **all** | " + " | ".join(map(str, total)) + " |"
