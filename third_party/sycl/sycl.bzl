"""Repository rule: the SYCL runtime for `--config=sycl`, from pinned packages or from a folder.

oneDNN is in the same folder: programs that find the runtime find it, too.

    @sycl_runtime//:sycl                  cc_library: the headers, and libsycl.so
    @sycl_runtime//:installed             cc_library: programs find libsycl.so where it was installed
    @sycl_runtime//:cpu_runtime           cc_library: that, and sycl_cpu_runtime.h, where the CPU's
                                          OpenCL device is
    @sycl_runtime//:libintelocl.so        the CPU's OpenCL device
    @sycl_runtime//:cpu                   a file with the CPU's name and instructions

$PAGEMILL_SYCL names a folder with `include/sycl`, `lib/libsycl.so`, `lib/libintelocl.so` and `lib/libdnnl.so.3` to use
instead. Fetched only when a target that depends on it is built.
"""

load("//tools/bazel:watch.bzl", "watched_path")

# The libraries depend on others beside them, for which the loader ignores the newer kind of path.
_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "sycl",
    hdrs = glob(["include/**"], exclude = ["include/python*/**"]),
    # Tells the headers that the kernels are not in the program.
    defines = ["SYCL_DISABLE_FSYCL_SYCLHPP_WARNING"],
    includes = ["include"],
    linkopts = [
        "-L{lib}",
        "-lsycl",
        "-Wl,--disable-new-dtags",
    ],
)

cc_library(
    name = "installed",
    linkopts = ["-Wl,-rpath,{lib}"],
)

cc_library(
    name = "cpu_runtime",
    hdrs = ["sycl_cpu_runtime.h"],
    includes = ["."],
    deps = [":installed"],
)

exports_files([
    "cpu",
    "libintelocl.so",
])
"""

_CPU_RUNTIME = """\
// The OpenCL device that is the CPU, for $OCL_ICD_FILENAMES.
#pragma once
inline constexpr char kSyclCpuRuntime[] = "{lib}/libintelocl.so";
"""

def _install(rctx, prefix):
    rctx.report_progress("pip install -r " + rctx.attr._lock.name)
    python = watched_path(rctx, rctx.attr._python)
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--ignore-installed",
        "--no-deps",
        "--require-hashes",
        "--prefix",
        prefix,
        "-r",
        watched_path(rctx, rctx.attr._lock),
    ]
    result = rctx.execute(install, timeout = 3600)
    if result.return_code != 0:
        fail("{}: pip cannot install the lock: {}{}".format(rctx.name, result.stdout, result.stderr))

def _impl(rctx):
    prefix = rctx.os.environ.get("PAGEMILL_SYCL")
    if not prefix:
        prefix = str(rctx.path("packages"))
        _install(rctx, prefix)
    for name in ["include/sycl/sycl.hpp", "lib/libsycl.so", "lib/libintelocl.so", "lib/libdnnl.so.3"]:
        if not rctx.path(prefix + "/" + name).exists:
            fail("{}/{} is missing: is PAGEMILL_SYCL the folder of a SYCL runtime and oneDNN?".format(prefix, name))
    lib = prefix + "/lib"
    rctx.symlink(prefix + "/include", "include")
    rctx.symlink(lib + "/libintelocl.so", "libintelocl.so")
    rctx.file("sycl_cpu_runtime.h", _CPU_RUNTIME.format(lib = lib))
    rctx.file("cpu", rctx.execute(["grep", "-m2", "-E", "^(model name|flags)", "/proc/cpuinfo"]).stdout)
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", _BUILD.format(lib = lib))

sycl_runtime = repository_rule(
    implementation = _impl,
    attrs = {
        "_lock": attr.label(default = "//third_party/sycl:sycl.lock"),
        "_python": attr.label(default = "@py_server//:python"),
    },
    environ = ["PAGEMILL_SYCL"],
)
