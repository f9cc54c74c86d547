"""Repository rule: Triton, which compiles kernels of cuda/triton when the tree is built.

    @triton//:packages    a file with the name of the folder beside it that has the Python package

It needs numpy of the interpreter that imports it. Fetched only when a target that depends on it is
built: 250 MB to download.
"""

load("//tools/bazel:watch.bzl", "watched_path")

# Arguments: the folder of the wheel, where to unpack it, and the beginnings of what is left out.
_UNPACK = """
import pathlib, sys, zipfile
(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
left_out = tuple("triton/" + prefix for prefix in sys.argv[3:])
with zipfile.ZipFile(wheel) as files:
    for entry in files.infolist():
        if entry.filename.startswith(left_out):
            continue
        path = pathlib.Path(files.extract(entry, sys.argv[2]))
        if entry.external_attr >> 16:
            path.chmod(entry.external_attr >> 16)
wheel.unlink()
"""

# Profilers, and headers of the runtimes: two fifths of the files' bytes.
_LEFT_OUT = [
    "FileCheck",
    "_C/libproton.so",
    "backends/amd/include/",
    "backends/nvidia/include/",
    "backends/nvidia/lib/cupti",
    "instrumentation/",
    "plugins/",
    "profiler/",
]

def _run(rctx, arguments):
    result = rctx.execute(arguments, timeout = 3600)
    if result.return_code != 0:
        fail("{}: {} failed: {}{}".format(rctx.name, arguments[0], result.stdout, result.stderr))
    return result.stdout

def _impl(rctx):
    python = watched_path(rctx, rctx.attr._python)
    lock = watched_path(rctx, rctx.attr._lock)
    rctx.report_progress("pip download -r " + rctx.attr._lock.name)
    _run(rctx, [
        python,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--dest",
        "wheel",
        "-r",
        lock,
    ])

    # The name holds the lock's digest, so that kernels are compiled anew when the lock changes.
    folder = "packages-" + _run(rctx, ["sha256sum", str(lock)])[:12]
    _run(rctx, [python, "-c", _UNPACK, "wheel", folder] + _LEFT_OUT)
    rctx.file("packages", folder + "\n")
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", "exports_files([\"packages\"], visibility = [\"//visibility:public\"])\n")

triton_package = repository_rule(
    implementation = _impl,
    attrs = {
        "_lock": attr.label(default = "//third_party/triton:triton.lock"),
        "_python": attr.label(default = "@py_server//:python"),
    },
)
