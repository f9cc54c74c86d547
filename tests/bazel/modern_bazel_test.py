"""Bazel 8 and 9 accept the tree, as far as that can be checked without them; docs/build.md lists
the checks. Each check is also tested on the faults that it detects."""

from __future__ import annotations

import pytest

from tests.bazel.checks import missing_from_shim, unknown_names, unwatched_labels
from tests.bazel.repositories import undeclared
from tests.bazel.starlark import Tree, read_tree
from tests.source_tree import ROOT


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree()


def changed(tree: Tree, path: str, old: str, new: str) -> Tree:
    """`tree` with another text in one file."""
    assert old in tree[path]
    return {**tree, path: tree[path].replace(old, new)}


def test_names_are_built_in_or_loaded(tree: Tree) -> None:
    assert list(unknown_names(tree)) == []


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("a/BUILD.bazel", 'cc_library(name = "a")', "cc_library"),
        ("a/a.bzl", "def f(deps):\n    return [dep[CcInfo] for dep in deps]\n", "CcInfo"),
        ("a/a.bzl", "def f():\n    native.cc_test(name = 'a')\n", "native.cc_test"),
        ("a/a.bzl", "f = lambda: cc_common.x\n", "cc_common"),
        ("a/BUILD.bazel", '[sh_test(name = n) for n in ["a"]]', "sh_test"),
    ],
)
def test_names_that_bazel_9_lacks_are_found(path: str, text: str, name: str) -> None:
    assert list(unknown_names({path: text})) == [
        f"{path}: Bazel 9 has no {name}; load it from a module"
    ]


def test_loaded_and_local_names_are_known() -> None:
    text = """
load("@rules_cc//cc:defs.bzl", "cc_library", test = "cc_test")
COPTS = ["-O3"]
def f(name, deps = [], **kwargs):
    copts = [copt for copt in COPTS if copt]
    cc_library(name = name, copts = copts, deps = sorted(deps), **kwargs)
    test(name = name + "_test")
"""
    assert list(unknown_names({"a/a.bzl": text})) == []


def test_repositories_are_declared_on_both_sides(tree: Tree) -> None:
    assert list(undeclared(tree)) == []


@pytest.mark.parametrize(
    ("path", "old", "side"),
    [
        ("MODULE.bazel", '    "smollm2_135m",\n', "MODULE.bazel"),
        ("third_party/models.bzl", "smollm2_135m", "WORKSPACE"),
        ("WORKSPACE", '    name = "googletest",\n', "WORKSPACE"),
        ("MODULE.bazel", 'bazel_dep(name = "googletest", version', "MODULE.bazel"),
    ],
)
def test_undeclared_repositories_are_found(tree: Tree, path: str, old: str, side: str) -> None:
    name = "smollm2_135m" if "smollm2" in old else "googletest"
    new = old.replace(name, "other") if "name" in old or path.endswith(".bzl") else ""
    faulty = changed(tree, path, old, new)
    if path.endswith(".bzl"):  # MODULE.bazel then names what the extension does not make
        with pytest.raises(ValueError, match="which its extension lacks"):
            list(undeclared(faulty))
        faulty = changed(faulty, "MODULE.bazel", '    "smollm2_135m",\n', "")
    assert any(f"@{name} is not declared in {side}" in line for line in undeclared(faulty))


def test_shim_has_what_is_loaded_from_rules_cc(tree: Tree) -> None:
    assert list(missing_from_shim(tree)) == []


@pytest.mark.parametrize(
    "load",
    [
        'load("@rules_cc//cc:defs.bzl", "cc_shared_library")',
        'load("@rules_cc//cc:defs.bzl", library = "cc_shared_library")',
        'load("@rules_cc//cc:cc_shared_library.bzl", "cc_shared_library")',
    ],
)
def test_what_the_shim_lacks_is_found(tree: Tree, load: str) -> None:
    found = list(missing_from_shim({**tree, "a/BUILD.bazel": load}))
    assert len(found) == 1 and found[0].endswith("has no cc_shared_library")


def test_label_attributes_are_watched(tree: Tree) -> None:
    assert list(unwatched_labels(tree)) == []


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (
            "tools/bazel/python_env.bzl",
            "watched_path(rctx, rctx.attr.lock)",
            "rctx.path(rctx.attr.lock)",
        ),
        (
            "tools/bazel/model_files.bzl",
            "watched_path(rctx, rctx.attr._tool)",
            "rctx.path(rctx.attr._tool)",
        ),
        (
            "third_party/onednn/onednn.bzl",
            "watched_path(rctx, rctx.attr._python)",
            "rctx.path(rctx.attr._python)",
        ),
        ("tools/bazel/watch.bzl", "rctx.watch(path)", "pass"),
        ("tools/bazel/watch.bzl", 'hasattr(rctx, "watch")', "True"),
    ],
)
def test_unwatched_labels_are_found(tree: Tree, path: str, old: str, new: str) -> None:
    found = list(unwatched_labels(changed(tree, path, old, new)))
    assert len(found) == 1 and found[0].startswith(f"{path}: ")


def test_bazelisk_alone_reads_the_pin() -> None:
    assert "USE_BAZEL_VERSION=" in (ROOT / ".bazeliskrc").read_text("utf-8")
    assert not (ROOT / ".bazelversion").exists()  # Debian's bazel would read it and refuse to start
