"""Reads Bazel files with Python's own parser: Starlark's grammar is a subset of Python's."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.source_tree import source_files

Tree = Mapping[str, str]
"""Path from the root -> text, of every Bazel file."""

BAZEL_4 = "third_party/bazel4/"
"""Stand-ins that Bazel 7 and newer never load."""

_SUFFIXES = (".bzl", "BUILD.bazel", ".BUILD", "WORKSPACE", "WORKSPACE.bzlmod", "MODULE.bazel")


@dataclass(frozen=True, slots=True)
class Load:
    """A load statement: `symbols` are named as the loaded file does, `names` as the loading one."""

    label: str
    symbols: tuple[str, ...]
    names: tuple[str, ...]


def read_tree() -> Tree:
    """The Bazel files of the source tree."""
    return {file.path: file.text for file in source_files(*_SUFFIXES)}


def is_build_file(path: str) -> bool:
    return path.endswith(("BUILD.bazel", ".BUILD"))


def is_bzl_file(path: str) -> bool:
    return path.endswith(".bzl")


def strings(text: str) -> Iterator[str]:
    """Every string literal: labels, and templates that hold some."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def loads(text: str) -> Iterator[Load]:
    """The load statements of a file."""
    for statement in ast.parse(text).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "load":
            label, *plain = (ast.literal_eval(argument) for argument in call.args)
            renamed = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
            symbols = (*plain, *renamed.values())
            yield Load(label, symbols, (*plain, *renamed))


def defined_names(text: str) -> set[str]:
    """The names that a file defines or loads."""
    table = symtable.symtable(text, "<starlark>", "exec")
    assigned = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    return assigned | {name for load in loads(text) for name in load.names}


def free_names(text: str) -> set[str]:
    """The names that a file uses without defining or loading them; they must be built into Bazel.

    Attributes of `native` count, as `native.glob`: they are names of BUILD files.
    """
    top = symtable.symtable(text, "<starlark>", "exec")
    used: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (table is top or symbol.is_global())
        }
    native = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "native"
    }
    return used - defined_names(text) - {"load"} | native
