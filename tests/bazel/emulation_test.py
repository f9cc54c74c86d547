"""Code for other CPUs lies in the layers whose tests `bazel test //...` runs on all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.source_tree import SourceFile, source_files

_CPU_CODE = re.compile(r"__aarch64__|\bisa = \"(asimd|sve)")


def kernel_layers(cc_bzl: str) -> list[str]:
    """_KERNEL_LAYERS of tools/bazel/cc.bzl."""
    for statement in ast.parse(cc_bzl).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == (
            "_KERNEL_LAYERS"
        ):
            return ast.literal_eval(statement.value)
    raise AssertionError("tools/bazel/cc.bzl has no _KERNEL_LAYERS")


def outside(files: Iterable[SourceFile], layers: list[str]) -> Iterator[str]:
    """Yields the files outside the layers that contain code for aarch64."""
    for file in files:
        inside = any(file.path.startswith(layer + "/") for layer in layers)
        if not inside and _CPU_CODE.search(file.text):
            yield file.path


def test_code_for_aarch64_is_in_the_layers_with_kernels() -> None:
    (rules,) = source_files("cc.bzl", under="tools/bazel")
    layers = kernel_layers(rules.text)
    files = list(source_files(".h", ".cc", "BUILD.bazel", under="cc"))
    assert list(outside(files, layers)) == []
    assert list(outside(files, layers[1:])), "the check finds nothing"
    faulty = SourceFile("cc/engine/a.cc", "#if defined(__aarch64__)\n")
    assert list(outside([faulty], layers)) == ["cc/engine/a.cc"]
