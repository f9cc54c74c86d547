"""`third_party/downloads.md` lists every repository that downloads, and adds up what CI takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.bazel.repositories import dev_repositories
from tests.bazel.starlark import Tree, read_tree
from tests.source_tree import ROOT

_ROW = re.compile(r"\| `(\w+)` \| (\d+) \| (CI|manual|--config=\w+) \|")
_TOTAL = re.compile(r"CI downloads ([\d,]+) MB in all\.")


def faults(tree: Tree, text: str) -> Iterator[str]:
    """Yields one line for each way in which the list is not that of the repositories."""
    rows = {m[1]: (int(m[2]), m[3]) for m in map(_ROW.fullmatch, text.splitlines()) if m}
    repositories = dev_repositories(tree)
    for name in sorted(repositories - set(rows)):
        yield f"@{name} has no row with its MB and when it is fetched"
    for name in sorted(set(rows) - repositories):
        yield f"there is no @{name}"
    total = sum(megabytes for megabytes, when in rows.values() if when == "CI")
    if not (stated := _TOTAL.search(text)) or int(stated[1].replace(",", "")) != total:
        yield f"CI downloads {total:,} MB in all"


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree()


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "third_party/downloads.md").read_text("utf-8")


def test_the_list_is_that_of_the_repositories(tree: Tree, text: str) -> None:
    assert list(faults(tree, text)) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "| `xgrammar` |",
            "| `other` |",
            "@xgrammar has no row with its MB and when it is fetched",
        ),
        ("| `xgrammar` |", "| `other` |", "there is no @other"),
        ("CI downloads ", "CI downloads 1", "CI downloads "),
    ],
)
def test_faults_are_found(tree: Tree, text: str, old: str, new: str, fault: str) -> None:
    assert old in text
    assert any(line.startswith(fault) for line in faults(tree, text.replace(old, new)))
