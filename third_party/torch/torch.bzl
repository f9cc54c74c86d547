"""Repository rule: the headers and libraries of the torch that is in a Python environment.

    @torch//:torch    cc_library: torch's C++ interface, with the pybind11 that it is built with

Fetched only when a target that depends on it is built. Downloads nothing.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "torch",
    srcs = ["lib/libc10.so", "lib/libtorch_cpu.so", "lib/libtorch_python.so"],
    hdrs = glob(["include/**/*.h"]),
    includes = ["include", "include/torch/csrc/api/include"],
    visibility = ["//visibility:public"],
)
"""

_WHERE = "import os, torch; print(os.path.dirname(torch.__file__))"

def _impl(rctx):
    result = rctx.execute([watched_path(rctx, rctx.attr.python), "-c", _WHERE], timeout = 600)
    if result.return_code != 0:
        fail("{}: {}{}".format(rctx.name, result.stdout, result.stderr))
    folder = result.stdout.strip()
    rctx.symlink(folder + "/include", "include")
    rctx.symlink(folder + "/lib", "lib")
    rctx.file("BUILD.bazel", _BUILD)

torch_library = repository_rule(
    implementation = _impl,
    attrs = {"python": attr.label(default = "@py_test//:python", doc = "The interpreter.")},
)
