"""What the workspace of a host must declare to build the public C++ libraries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.bazel.starlark import BAZEL_4, Tree, loads

# The packages of the targets that hosts name.
_PUBLIC = ("", "cc/sdk")
_REPOSITORY = re.compile(r"@([A-Za-z0-9_.-]+)(?://|$)")
# Named in a select() on a flag of this workspace.
_OPTIONAL = {"onednn"}
# Of calls that make nothing that a library depends on.
_NOT_LIBRARIES = re.compile(r"(_test|_benchmark|^fuzz_target|^load|^sdk)$")


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_testonly(call: ast.Call) -> bool:
    return any(keyword.arg == "testonly" for keyword in call.keywords)


def _labels(node: ast.AST) -> Iterator[str]:
    """Yields the labels in a BUILD file, except visibility and those of tests."""
    if isinstance(node, ast.Call) and (_NOT_LIBRARIES.search(_called(node)) or _is_testonly(node)):
        return
    if isinstance(node, ast.keyword) and node.arg in {"visibility", "packages"}:
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith(("//", "@")):
            yield node.value
        return
    for child in ast.iter_child_nodes(node):
        yield from _labels(child)


def _file_of(label: str, package: str) -> str:
    """The path of a .bzl file that a file in `package` loads."""
    if label.startswith(":"):
        return f"{package}/{label[1:]}"
    return label.removeprefix("//").replace(":", "/").removeprefix("/")


class _Walk:
    """The packages and files that building the public libraries loads."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.seen: set[str] = set()
        self.found: dict[str, str] = {}
        for package in _PUBLIC:
            self._visit_package(package)

    def _use(self, label: str, path: str) -> None:
        for name in _REPOSITORY.findall(label):
            self.found.setdefault(name, path)

    def _visit_loads(self, path: str) -> None:
        for load in loads(self.tree[path]):
            self._use(load.label, path)
            if load.label.startswith("@"):
                continue
            file = _file_of(load.label, path.rpartition("/")[0])
            if file not in self.seen:
                self.seen.add(file)
                self._visit_loads(file)
                self._visit_lists(file)

    def _visit_lists(self, path: str) -> None:
        """Lists of packages that a .bzl file has for BUILD files."""
        for statement in ast.parse(self.tree[path]).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List):
                self._visit_labels(statement, path)

    def _visit_package(self, package: str) -> None:
        path = f"{package}/BUILD.bazel".removeprefix("/")
        if path in self.seen or path not in self.tree:
            return
        self.seen.add(path)
        self._visit_loads(path)
        self._visit_labels(ast.parse(self.tree[path]), path)

    def _visit_labels(self, node: ast.AST, path: str) -> None:
        for label in _labels(node):
            self._use(label, path)
            if label.startswith("//"):
                self._visit_package(label.removeprefix("//").partition(":")[0])


def repositories(tree: Tree) -> dict[str, str]:
    """The repositories that a host's build needs -> a file that names each."""
    walk = _Walk({path: text for path, text in tree.items() if not path.startswith(BAZEL_4)})
    return {name: path for name, path in walk.found.items() if name not in _OPTIONAL}
