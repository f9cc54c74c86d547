"""Repository rule: oneDNN for `--config=onednn`, from pinned Python packages or from a folder.

    @onednn//:onednn    cc_library: headers of the C interface, and libdnnl.so.3

$PAGEMILL_ONEDNN names a folder with `include/oneapi/dnnl` and `lib/libdnnl.so.3` to use instead.
Fetched only when a target that depends on it is built.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_VERSION = "2023.2.0"
_LIBRARY = "lib/libdnnl.so.3"

# Digests of the files that are taken out of the packages.
_SHA256 = {
    "include/oneapi/dnnl/dnnl.h": "eefd6013694bb1852d83b392e6c978b38441511b6ffe874c3cf8d4cbac7257ba",
    "include/oneapi/dnnl/dnnl_common.h": "98a01d9441dd8056551df53402cb90bfc00b92ca11a51c45649c76ce175ddf65",
    "include/oneapi/dnnl/dnnl_common_types.h": "29fa2e895a7af44e0418a1bf92675b7af9a02d55b63296bd79197a44adc2afdd",
    "include/oneapi/dnnl/dnnl_config.h": "6979dce6c950746f8c11f26dbf68b23bb492ce216c258bc03dd43c5513ece59c",
    "include/oneapi/dnnl/dnnl_types.h": "86af0d3958198bf3457afabedf1a58e476f215be7053e4eb335075b39ae8164d",
    "include/oneapi/dnnl/dnnl_version.h": "416bbdfb3c9ea2ff03fc6e3507ae325afcbfae99799cc65c46045f9f27deace5",
    "lib/libdnnl.so.3": "e6376208cf6bacb041c346b504207e3aa1189a13f941c92a4383a55ac27058ae",
}

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "onednn",
    srcs = ["lib/libdnnl.so.3"],
    hdrs = glob(["include/oneapi/dnnl/*.h"]),
    includes = ["include"],
    # The library is the build for GCC's OpenMP, whose thread count its user sets.
    linkopts = ["-lgomp"],
    visibility = ["//visibility:public"],
)
"""

def _member(name):
    """Returns where the file is: [path inside the wheels]."""
    package = "onednn_cpu_gomp" if name == _LIBRARY else "onednn_devel_cpu_gomp"
    return ["{}-{}.data/data/{}".format(package, _VERSION, name)]

def _download(rctx):
    packages = [
        "onednn-cpu-gomp==" + _VERSION,
        "onednn-devel-cpu-gomp==" + _VERSION,
    ]
    rctx.report_progress("pip download " + " ".join(packages))
    rctx.file("spec.json", json.encode(struct(
        members = {name: _member(name) for name in _SHA256},
        packages = packages,
        sha256 = _SHA256,
    )))
    result = rctx.execute(
        [watched_path(rctx, rctx.attr._python), watched_path(rctx, rctx.attr._tool), "spec.json"],
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("{}: {}{}".format(rctx.name, result.stdout, result.stderr))

def _impl(rctx):
    folder = rctx.os.environ.get("PAGEMILL_ONEDNN")
    if folder:
        for name in ["include/oneapi", _LIBRARY]:
            path = rctx.path(folder + "/" + name)
            if not path.exists:
                fail("{} is missing: PAGEMILL_ONEDNN={} is no oneDNN 3".format(path, folder))
            rctx.symlink(path, name)
    else:
        _download(rctx)
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", _BUILD)

onednn_library = repository_rule(
    implementation = _impl,
    attrs = {
        "_python": attr.label(default = "@py_server//:python"),
        "_tool": attr.label(default = "//tools/bazel:model_files.py"),
    },
    environ = ["PAGEMILL_ONEDNN"],
)
