"""The C++ layers of the real tree follow the table, and the check detects violations."""

import pytest

from tests.layering import cc_layers
from tests.source_tree import SourceFile, source_files


def _cc_files():
    files = source_files(".h", ".cc", "BUILD.bazel", under="cc")
    return [file for file in files if len(file.parts) > 2]


def test_real_tree_keeps_to_the_table():
    files = _cc_files()
    assert files, "no C++ files found"
    offences = cc_layers.offences(files, cc_layers.read_users())
    assert not offences, "\n".join(offences)


def test_every_folder_of_cc_is_in_the_table():
    known = set(cc_layers.read_users()) | {"bindings", "examples", "sdk"}
    assert {file.parts[1] for file in _cc_files()} <= known


def test_table_has_no_cycle():
    users = cc_layers.read_users()
    users.pop("runner_interface")  # the one place where the columns meet
    order: list[str] = []
    while remaining := set(users) - set(order):
        free = {layer for layer in remaining if not users[layer] & remaining}
        assert free, f"cycle among {sorted(remaining)}"
        order += sorted(free)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cc/base/a.h", '#include "cc/step/request.h"'),
        ("cc/scheduler/a.cc", '#include "cc/tensor/dtype.h"'),
        ("cc/scheduler/a.cc", "#include <chrono>"),
        ("cc/kv_cache/a.h", "#include <random>"),
        ("cc/engine/a.cc", "#include <torch/torch.h>"),
        ("cc/engine/a.cc", '  #  include "nanobind/nanobind.h"'),
        ("cc/engine/a.cc", '#include "cc/runner/model_runner.h"'),
        ("cc/runner/a.cc", '#include "cc/engine/engine.h"'),
        ("cc/ops/add/a.cc", '#include "cuda/device/stream.h"'),
        ("cc/ops/add/a.cc", "#ifdef __CUDACC__"),
        ("cc/ops/linear/a.cc", '#include "oneapi/dnnl/dnnl.h"'),
        ("cc/runner/a.cc", "#include <xgrammar/xgrammar.h>"),
        ("cc/ops/linear/onednn/a.cc", '#include "oneapi/mkl.hpp"'),
        ("cc/step/BUILD.bazel", 'cc_library(name = "a", deps = ["//cc/engine"])'),
    ],
)
def test_offence_is_seen(path: str, text: str):
    assert len(cc_layers.offences([SourceFile(path, text)], cc_layers.read_users())) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cc/runner/a.cc", '#include "cc/engine/runner.h"'),
        ("cc/capi/a.cc", '#include "cc/engine/engine.h"'),
        ("cc/bindings/a.cc", "#include <nanobind/nanobind.h>"),
        ("cc/ops/linear/onednn/a.cc", '#include "oneapi/dnnl/dnnl.h"'),
        ("cc/grammar/a.cc", "#include <xgrammar/xgrammar.h>"),
        ("cc/scheduler/a_test.cc", "#include <random>"),
        ("cc/step/BUILD.bazel", 'cc_library(name = "a", visibility = ["//cc:step_users"])'),
    ],
)
def test_rightful_use_passes(path: str, text: str):
    assert cc_layers.offences([SourceFile(path, text)], cc_layers.read_users()) == []
