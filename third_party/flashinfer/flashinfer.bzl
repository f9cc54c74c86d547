"""Repository rule: FlashInfer's headers of CUDA kernels, out of a pinned Python package.

    @flashinfer//:flashinfer    cc_library: headers, and the versions of CUDA's own that they need
    @flashinfer//:cutlass       cc_library: the headers of CUTLASS that those for Hopper need

pip downloads the package and compares its digest; nothing of it is installed. Fetched only when a
target that depends on it is built.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_VERSION = "0.7.2.post1"
_SHA256 = "bfdc18b9e1e4d8d0730fe4343dc0e284cd0c160086de80f99888bc4867922d49"

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "flashinfer",
    hdrs = glob({folders}),
    # In this order: before the toolkit's.
    includes = {includes},
    visibility = ["//visibility:public"],
)

cc_library(
    name = "cutlass",
    hdrs = glob(["{cutlass}/**"]),
    includes = ["{cutlass}"],
    visibility = ["//visibility:public"],
)
"""

# Where headers are in the package, and what of it they are included by.
_INCLUDES = [
    "flashinfer/data/include",
    "flashinfer/data/cccl/cub",
    "flashinfer/data/cccl/libcudacxx/include",
    "flashinfer/data/cccl/thrust",
]

_CUTLASS = "flashinfer/data/cutlass/include"

# Arguments: the wheel, then the folders that are taken out of it.
_UNPACK = """
import sys, zipfile
wheel, *folders = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if name.startswith(tuple(folder + "/" for folder in folders)):
            files.extract(name)
"""

def _run(rctx, arguments):
    result = rctx.execute(arguments, timeout = 3600)
    if result.return_code != 0:
        fail("{}: {}{}".format(rctx.name, result.stdout, result.stderr))

def _impl(rctx):
    python = watched_path(rctx, rctx.attr._python)
    rctx.file("requirements.txt", "flashinfer-python=={} --hash=sha256:{}\n".format(_VERSION, _SHA256))
    rctx.report_progress("pip download flashinfer-python==" + _VERSION)
    _run(rctx, [
        python,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--requirement=requirements.txt",
    ])
    wheel = "flashinfer_python-{}-py3-none-any.whl".format(_VERSION)
    _run(rctx, [python, "-c", _UNPACK, wheel, _CUTLASS] + _INCLUDES)
    rctx.delete(wheel)
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", _BUILD.format(
        folders = repr([folder + "/**" for folder in _INCLUDES]),
        includes = repr(_INCLUDES),
        cutlass = _CUTLASS,
    ))

flashinfer_headers = repository_rule(
    implementation = _impl,
    attrs = {"_python": attr.label(default = "@py_server//:python")},
)
