"""buildifier finds no rule or symbol that Bazel 9 moved out into a module."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.bazel.starlark import BAZEL_4, read_tree
from tests.source_tree import ROOT

_PROGRAM = "PAGEMILL_TEST_BUILDIFIER"


def native_warnings(files: list[Path]) -> list[str]:
    """Lints with all warnings; those of the `native-` categories fail, others are printed."""
    program = os.environ.get(_PROGRAM, "")
    if not program and "TEST_SRCDIR" not in os.environ:
        pytest.skip(f"{_PROGRAM} is not set")
    command = [program, "-mode=check", "-lint=warn", "-warnings=all", "-format=json"]
    run = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=True)
    result: list[str] = []
    for file in json.loads(run.stdout)["files"]:
        for warning in file["warnings"]:
            line = f"{file['filename']}:{warning['start']['line']}: {warning['category']}"
            print(line)
            if warning["category"].startswith("native-"):
                result.append(line)
    return result


def test_tree() -> None:
    files = [ROOT / path for path in read_tree() if not path.startswith(BAZEL_4)]
    assert len(files) > 100
    assert native_warnings(files) == []


@pytest.mark.parametrize(
    ("name", "text", "category"),
    [
        ("BUILD.bazel", 'cc_library(name = "a")\n', "native-cc-library"),
        ("a.bzl", '"""A."""\n\ndef f():\n    native.sh_test(name = "a")\n', "native-sh-test"),
        ("a.bzl", '"""A."""\n\nf = CcInfo\n', "native-cc-info"),
    ],
)
def test_native_rules_are_found(tmp_path: Path, name: str, text: str, category: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert [line.split(": ")[1] for line in native_warnings([file])] == [category]
