"""Repository rule: HIP's headers and device libraries for `--config=hip`.

    @hip_sdk//:files                     filegroup: all of them
    @hip_sdk//:include/hip/hip_runtime.h
    @hip_sdk//:bitcode/ocml.bc

They are part of a pinned Python package. $PAGEMILL_ROCM names a folder with `include/hip` and
`amdgcn/bitcode` to use instead. Fetched only when a target that depends on it is built.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files([
    "bitcode/ocml.bc",
    "include/hip/hip_runtime.h",
])

filegroup(
    name = "files",
    srcs = glob([
        "bitcode/*.bc",
        "include/hip/**",
    ]),
)
"""

# Arguments: the folder of the wheel. Takes the headers and the libraries out of it.
_UNPACK = """
import pathlib, sys, zipfile
(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
folders = {"triton/backends/amd/include/hip/": "include/hip", "triton/backends/amd/lib/": "bitcode"}
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        for prefix, to in folders.items():
            if name.startswith(prefix) and not name.endswith("/"):
                path = pathlib.Path(to, name.removeprefix(prefix))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files.read(name))
wheel.unlink()
"""

# GPUs by the names of their instruction sets, as the libraries number them.
_ISA_VERSIONS = {
    "90a": 9010,
    "942": 9402,
    "950": 9500,
    "1100": 11000,
    "1201": 12001,
}

_ABI_VERSION = 600

def _run(rctx, arguments):
    result = rctx.execute(arguments, timeout = 3600)
    if result.return_code != 0:
        fail("{}: {} failed: {}{}".format(rctx.name, arguments[0], result.stdout, result.stderr))

def _options():
    """Every file `oclc_<name>.bc` of the device libraries: its constants, as (name, type, value)."""
    options = {"abi_version_{}".format(_ABI_VERSION): [("ABI_version", "i32", _ABI_VERSION)]}
    for arch, version in _ISA_VERSIONS.items():
        options["isa_version_" + arch] = [("ISA_version", "i32", version)]
    for value, state in enumerate(["off", "on"]):
        for file, constant in [
            ("correctly_rounded_sqrt", "correctly_rounded_sqrt32"),
            ("finite_only", "finite_only_opt"),
            ("unsafe_math", "unsafe_math_opt"),
        ]:
            options["{}_{}".format(file, state)] = [(constant, "i8", value)]
        options["wavefrontsize64_" + state] = [
            ("wavefrontsize64", "i8", value),
            ("wavefrontsize_log2", "i32", 5 + value),
        ]
    return options

def _compile_constants(rctx, name, constants):
    text = "target triple = \"amdgcn-amd-amdhsa\"\n" + "".join([
        "@__oclc_{} = linkonce_odr protected local_unnamed_addr addrspace(4) constant {} {}\n".format(*constant)
        for constant in constants
    ])
    rctx.file(name + ".ll", text)
    _run(rctx, [
        rctx.which("clang++-22"),
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        "-emit-llvm",
        "-c",
        name + ".ll",
        "-o",
        "bitcode/{}.bc".format(name),
    ])
    rctx.delete(name + ".ll")

def _download(rctx):
    rctx.report_progress("pip download -r " + rctx.attr._lock.name)
    python = watched_path(rctx, rctx.attr._python)
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
        "--implementation=cp",
        "--python-version=3.11",
        "--platform=manylinux_2_28_x86_64",
        "--dest",
        "wheel",
        "-r",
        watched_path(rctx, rctx.attr._lock),
    ])
    _run(rctx, [python, "-c", _UNPACK, "wheel"])
    for name, constants in _options().items():
        _compile_constants(rctx, "oclc_" + name, constants)

    # The driver looks for the library of OpenCL, which kernels do not use.
    _compile_constants(rctx, "opencl", [])

def _impl(rctx):
    rocm = rctx.os.environ.get("PAGEMILL_ROCM")
    if rocm:
        for name, folder in [("bitcode", "amdgcn/bitcode"), ("include/hip", "include/hip")]:
            path = rctx.path(rocm + "/" + folder)
            if not path.exists:
                fail("{} is missing: is PAGEMILL_ROCM={} the folder of a ROCm?".format(path, rocm))
            rctx.symlink(path, name)
    else:
        _download(rctx)
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", _BUILD)

hip_sdk = repository_rule(
    implementation = _impl,
    attrs = {
        "_lock": attr.label(default = "//third_party/hip:hip.lock"),
        "_python": attr.label(default = "@py_server//:python"),
    },
    environ = ["PAGEMILL_ROCM", "PATH"],
)
