"""A host in a Bazel workspace of its own, built as C++17 apart from its one target, uses the
scheduler of this one and runs. It compiles the scheduler anew, which takes minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

_WORKSPACE = """\
workspace(name = "host")

local_repository(
    name = "pagemill",
    path = "{root}",
)

load("@pagemill//third_party:bazel4.bzl", "bazel4_repositories")

bazel4_repositories()
"""

_MODULE = """\
module(name = "host")

bazel_dep(name = "pagemill")
local_path_override(
    module_name = "pagemill",
    path = "{root}",
)
bazel_dep(name = "rules_cc", version = "0.2.17")
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_binary")

cc_binary(
    name = "host",
    srcs = [
        "main.cc",
        "toy_runner.cc",
        "toy_runner.h",
    ],
    copts = ["-std=c++20"],
    deps = ["@pagemill//:scheduler"],
)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "WORKSPACE").write_text(_WORKSPACE.format(root=ROOT))
    (tmp_path / "WORKSPACE.bzlmod").write_text("")
    (tmp_path / "MODULE.bazel").write_text(_MODULE.format(root=ROOT))
    (tmp_path / "BUILD.bazel").write_text(_BUILD)
    for source in ["main.cc", "toy_runner.cc", "toy_runner.h"]:
        shutil.copy(ROOT / "cc/examples/embed_scheduler" / source, tmp_path)
    return tmp_path


def test_a_host_in_another_workspace(workspace: Path, tmp_path_factory: pytest.TempPathFactory):
    output_root = tmp_path_factory.mktemp("bazel")

    def bazel(*arguments: str) -> str:
        command = [os.environ.get("BAZEL", "bazel"), f"--output_user_root={output_root}"]
        done = subprocess.run(
            [*command, *arguments], cwd=workspace, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    try:
        flags = ["--cxxopt=-std=c++17", "--jobs=2"]
        bazel("build", "--nobuild", *flags, "@pagemill//:engine", "@pagemill//:pagemill")
        assert "12 requests" in bazel("run", *flags, "//:host")
    finally:
        bazel("shutdown")
