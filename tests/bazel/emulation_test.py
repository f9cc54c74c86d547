"""Code for other CPUs lies in the folders whose tests `bazel test //...` runs on all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.source_tree import SourceFile, source_files

_CPU_CODE = re.compile(r"__aarch64__|\bisa = \"(asimd|sve)")


def kernel_folders(cc_bzl: str) -> list[str]:
    """_KERNEL_FOLDERS of tools/bazel/cc.bzl."""
    for statement in ast.parse(cc_bzl).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == (
            "_KERNEL_FOLDERS"
        ):
            return ast.literal_eval(statement.value)
    raise AssertionError("tools/bazel/cc.bzl has no _KERNEL_FOLDERS")


def outside(files: Iterable[SourceFile], folders: list[str]) -> Iterator[str]:
    """Yields the files outside the folders that contain code for aarch64."""
    for file in files:
        inside = any(file.path.startswith(folder + "/") for folder in folders)
        if not inside and _CPU_CODE.search(file.text):
            yield file.path


def test_code_for_aarch64_is_in_the_folders_with_kernels() -> None:
    (rules,) = source_files("cc.bzl", under="tools/bazel")
    folders = kernel_folders(rules.text)
    files = list(source_files(".h", ".cc", "BUILD.bazel", under="cc"))
    assert list(outside(files, folders)) == []
    assert list(outside(files, folders[1:])), "the check finds nothing"
    faulty = SourceFile("cc/engine/a.cc", "#if defined(__aarch64__)\n")
    assert list(outside([faulty], folders)) == ["cc/engine/a.cc"]
