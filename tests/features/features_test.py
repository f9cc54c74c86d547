"""The page of features is true to the tree, as far as a program can see."""

from pathlib import Path

import pytest

from tests.features.build_targets import defined_tests
from tests.features.feature_page import count_errors, link_errors, read_page, row_errors
from tests.source_tree import ROOT

_PATH = ROOT / "docs/features.md"

_GOOD = """
| [Cache](#cache) | 1 | 1 | 1 |
| **all** | 1 | 1 | 1 |

## Cache

| feature | state | where | test | PRs |
|---|---|---|---|---|
| hits | yes | [page](page.md#cache) | `//a/b:one_test` `//a/b:two_test` | #1 #22 |
| misses | partly | [page](page.md); missing: most | `//a/b:avx2_test` |  |
| pins | no |  |  |  |
"""
_BUILD = """
load("//tools:rules.bzl", "CPUS", "pytest_test", "py_library")

py_library(name = "three_test_library", srcs = CPUS["all"])

pytest_test(name = "one_test")

[pytest_test(name = name) for name in ["two_test"]]

[pytest_test(name = "{}_test".format(isa)) for isa in ["avx2"]]
"""


def _write_tree(root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/BUILD.bazel").write_text(_BUILD)
    (root / "page.md").write_text("# Page\n\n## Cache\n")


def _errors(text: str, root: Path) -> list[str]:
    page = read_page(text)
    path = root / "features.md"
    path.write_text(text)
    return [*row_errors(page, root), *link_errors(page, path), *count_errors(page)]


def test_real_page():
    page = read_page(_PATH.read_text("utf-8"))
    assert len(page.rows) > 200
    errors = [*row_errors(page, ROOT), *link_errors(page, _PATH)]
    assert not errors, "\n".join(errors)
    counts = list(count_errors(page))
    assert not counts, "the counts at the top should be:\n" + "\n".join(counts)


def test_good_page_passes(tmp_path: Path):
    _write_tree(tmp_path)
    assert _errors(_GOOD, tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("| pins | no |", "| pins | soon |", "'soon' is none of"),
        ("| pins | no |  |  |", "| pins | no |  | `//a/b:one_test` |", "no with 1 tests"),
        (" `//a/b:avx2_test` ", " ", "partly with 0 tests"),
        ("one_test", "four_test", "there is no test //a/b:four_test"),
        ("//a/b:one_test", "//a/c:one_test", "there is no test //a/c:one_test"),
        ("avx2_test", "three_test_library", "there is no test //a/b:three_test_library"),
        ("[page](page.md#cache)", "page", "hits: yes without a link"),
        ("; missing: most", "", "what is missing is said of"),
        ("two_test`", "two_test` and others", "the tests are not labels"),
        ("#1 #22", "1, 22", "not numbers of pull requests"),
        ("page.md#cache", "gone.md", "gone.md: there is no such file"),
        ("page.md#cache", "page.md#pool", "page.md#pool: there is no such heading"),
        ("| misses |", "| hits |", "hits: 2 rows"),
        ("cache) | 1 | 1", "cache) | 2 | 1", "| Cache | 1 | 1 | 1 |"),
        ("**all** | 1", "**all** | 2", "| **all** | 1 | 1 | 1 |"),
    ],
)
def test_offence_is_seen(old: str, new: str, error: str, tmp_path: Path):
    _write_tree(tmp_path)
    assert old in _GOOD
    errors = _errors(_GOOD.replace(old, new), tmp_path)
    assert any(error in line for line in errors), errors


def test_a_subsystem_without_rows_is_counted(tmp_path: Path):
    _write_tree(tmp_path)
    text = _GOOD.replace("| **all**", "| [Graphs](#cache) | 1 | 0 | 0 |\n| **all**")
    assert _errors(text, tmp_path) == ["| Graphs | 0 | 0 | 0 |"]


def test_a_line_with_other_columns_is_refused():
    with pytest.raises(ValueError, match="4 cells instead of 5"):
        read_page(_GOOD.replace("| #1 #22 |", "|"))


def test_targets_of_this_tree():
    assert defined_tests(ROOT / "tests/features") == {"features_test"}
