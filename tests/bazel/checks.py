"""Finds what Bazel 9 would reject, or Bazel 8 would no longer notice, without running either."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.bazel import bazel_9
from tests.bazel.starlark import (
    BAZEL_4,
    Tree,
    defined_names,
    free_names,
    is_build_file,
    is_bzl_file,
    loads,
)

_RULES_CC = "@rules_cc//"


def unknown_names(tree: Tree) -> Iterator[str]:
    """Yields one line for each name that a file neither defines nor loads and Bazel 9 lacks."""
    for path, text in tree.items():
        if path.startswith(BAZEL_4) or not (is_build_file(path) or is_bzl_file(path)):
            continue
        known = bazel_9.BUILD_FILE if is_build_file(path) else bazel_9.BZL_FILE | bazel_9.NATIVE
        for name in sorted(free_names(text) - known):
            yield f"{path}: Bazel 9 has no {name}; load it from a module"


def missing_from_shim(tree: Tree) -> Iterator[str]:
    """Yields one line for each symbol of @rules_cc that its stand-in for Bazel 4 does not have."""
    for path, text in tree.items():
        for load in loads(text):
            if not load.label.startswith(_RULES_CC):
                continue
            file = f"{BAZEL_4}rules_cc/" + load.label.removeprefix(_RULES_CC).replace(":", "/")
            known = defined_names(tree[file]) if file in tree else set[str]()
            for symbol in sorted(set(load.symbols) - known):
                yield f"{path}: {file} has no {symbol}"


def unwatched_labels(tree: Tree) -> Iterator[str]:
    """Yields one line for each function that takes the path of a label without watching the file.

    A label is an attribute that the file declares as one, or a parameter of the function.
    """
    for path, text in tree.items():
        if not is_bzl_file(path):
            continue
        module = ast.parse(text)
        labels = _label_attributes(module)
        for function in ast.walk(module):
            if not isinstance(function, ast.FunctionDef):
                continue
            parameters = {argument.arg for argument in function.args.args}
            taken = {
                ast.unparse(call.args[0])
                for call in _calls(function, "path")
                if _is_label(call.args[0], labels, parameters)
            }
            if taken and not _watches(function):
                yield f"{path}: {function.name} does not watch {', '.join(sorted(taken))}"


def _label_attributes(module: ast.Module) -> set[str]:
    """The keys of dictionaries whose values are attr.label(...)."""
    return {
        str(ast.literal_eval(key))
        for node in ast.walk(module)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "attr.label" and key
    }


def _calls(node: ast.AST, method: str) -> Iterator[ast.Call]:
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and ast.unparse(child.func).endswith(f".{method}"):
            yield child


def _is_label(argument: ast.expr, labels: set[str], parameters: set[str]) -> bool:
    if isinstance(argument, ast.Name):
        return argument.id in parameters
    return isinstance(argument, ast.Attribute) and argument.attr in labels


def _watches(function: ast.FunctionDef) -> bool:
    """True if it calls `watch` when Bazel has it; 4.2.3 has not."""
    return any(
        isinstance(node, ast.If)
        and "hasattr" in ast.unparse(node.test)
        and any(_calls(node, "watch"))
        for node in ast.walk(function)
    )
