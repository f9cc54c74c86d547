"""Other workspaces can build the public C++ libraries with what this one declares for them.

tests/embed:bazel_host_test builds such a workspace; it takes minutes, so it is run by hand.
"""

from __future__ import annotations

import pytest

from tests.bazel.hosts import repositories
from tests.bazel.repositories import declared_for_hosts
from tests.bazel.starlark import Tree, read_tree

# Loaded by Bazel 4.2.3 itself.
_OF_BAZEL = {"remote_coverage_tools", "rules_java"}


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree()


def test_hosts_need_what_is_declared_for_them(tree: Tree) -> None:
    needed = repositories(tree)
    assert {"rules_cc", "xxhash"} <= set(needed)
    for side, names in declared_for_hosts(tree).items():
        assert names - _OF_BAZEL == set(needed), f"{side}, {needed}"


@pytest.mark.parametrize(
    ("path", "old", "new", "name"),
    [
        ("cc/step/BUILD.bazel", 'load("', 'load("@py_test//:a.bzl", "a")\nload("', "py_test"),
        ("cc/base/BUILD.bazel", '"@xxhash"', '"@xxhash", "@googletest//:gtest"', "googletest"),
        (
            "tools/bazel/isa.bzl",
            "ISAS = {",
            'load("@py_server//:b.bzl", "b")\nISAS = {',
            "py_server",
        ),
    ],
)
def test_a_dependency_on_a_dev_repository_is_found(
    tree: Tree, path: str, old: str, new: str, name: str
) -> None:
    assert old in tree[path]
    faulty = {**tree, path: tree[path].replace(old, new, 1)}
    assert repositories(faulty)[name] == path
    assert all(name not in names for names in declared_for_hosts(faulty).values())


def test_toolchains_of_tests_are_not_registered_for_hosts(tree: Tree) -> None:
    _, _, registered = tree["MODULE.bazel"].partition("register_toolchains(")
    assert "dev_dependency = True" in registered
    assert "register_toolchains" not in tree["third_party/bazel4.bzl"]
