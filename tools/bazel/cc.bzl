"""C++ macros: tests on three CPUs, libraries for one instruction set, benchmarks."""

load("@local_tools//:defs.bzl", "TOOLS")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load("//tools/bazel:isa.bzl", "ISAS", "KERNEL_COPTS")
load("//tools/bazel:qemu_test.bzl", "native_qemu_test", "qemu_test")
load("//tools/bazel:requires.bzl", "has_tools", "requires")

_PORTABLE_CPUS = ["aarch64", "s390x"]

# Where emulated tests run in `bazel test //...`; .ci/matrix runs the others. Folders with code for
# instruction sets:
_KERNEL_FOLDERS = [
    "cc/device",
    "cc/ops/grouped_linear",
    "cc/ops/head_linear",
    "cc/ops/linear",
    "cc/ops/vec",
    "cc/tensor",
]

# Folders whose portable code reads or writes bytes: weights, files, hashes, text. s390x differs from
# x86-64 in its byte order and in the sign of char, and covers any other CPU. What is left decides
# and counts, which does not depend on the CPU.
_BYTE_FOLDERS = [
    "cc/base",
    "cc/grammar",
    "cc/kv_cache",
    "cc/kv_transfer",
    "cc/net",
    "cc/ops",
    "cc/program",
    "cc/step",
]

# Tests include googletest first of all, so that it is parsed once.
PRECOMPILED_GTEST_COPTS = ["-include", "third_party/googletest/precompiled.h"]
PRECOMPILED_GTEST = "//third_party/googletest:precompiled"

# Emulated tests that `bazel test //...` omits; .ci/matrix runs them.
_MATRIX_TAGS = ["manual", "matrix"]

# CPUs with fewer features than the kernels can use: name -> (family, qemu's model, what is detected
# on it).
_LESSER_CPUS = {
    "cortex_a53": ("aarch64", "cortex-a53", "baseline"),
    "haswell": ("x86_64", "Haswell", "avx2"),
    "nehalem": ("x86_64", "Nehalem", "baseline"),
    "neoverse_n1": ("aarch64", "neoverse-n1", "asimd_dotprod"),
    "z14": ("s390x", "max,vxeh2=off", "vxe"),
}

# Features that a test must detect on a lesser CPU.
_CAPABILITIES = "PAGEMILL_TEST_CAPABILITIES"

def _is_in(package, folders):
    for folder in folders:
        if package == folder or package.startswith(folder + "/"):
            return True
    return False

def _cpus_of_folder(package, reaches_kernels):
    """The emulated CPUs that `bazel test //...` runs the tests of a package on."""
    if reaches_kernels or _is_in(package, _KERNEL_FOLDERS):
        return _PORTABLE_CPUS
    return ["s390x"] if _is_in(package, _BYTE_FOLDERS) else []

def portable_cc_test(
        name,
        srcs,
        deps = [],
        size = "small",
        data = [],
        args = [],
        env = {},
        copts = [],
        tags = [],
        cpus = _PORTABLE_CPUS,
        tested_cpus = None,
        lesser_cpus = None,
        lesser_filter = "*"):
    """A googletest on this machine, and on emulated CPUs of other widths and byte orders.

    Args:
      name: the native test; `<name>_<cpu>` are the emulated ones, skipped where the cross compiler
        or qemu is missing. `bazel test //...` runs those that the folder calls for.
      srcs: sources of the test.
      deps: what it tests; googletest and its main() are added.
      size: of the native test. The emulated ones are a size up: qemu is 10 to 30 times slower.
      data: files found by their path from the root.
      args: arguments of the program.
      env: environment variables of the test.
      copts: compiler flags.
      tags: of all the tests.
      cpus: which emulated CPUs.
      tested_cpus: those of them that `bazel test //...` runs, if not those that the folder calls for:
        for a long test of portable kernels, the CPU that is emulated faster.
      lesser_cpus: "always" or "matrix": also on emulated CPUs that lack what kernels are written
        for, one test for each name in _LESSER_CPUS: a kernel that is chosen wrongly, or whose code
        the linker gave to others, ends on an illegal instruction. "matrix" leaves them out of
        `bazel test //...`: for a long test of kernels that the other CPUs run as well, of an op that
        //cc/program:executor_parity_test has.
      lesser_filter: googletest's filter of what runs on these: that each kernel runs once is enough.
    """
    cc_test(
        name = name,
        size = size,
        srcs = srcs,
        args = args,
        copts = copts + PRECOMPILED_GTEST_COPTS,
        data = data,
        env = env,
        tags = tags,
        deps = deps + [PRECOMPILED_GTEST, "@googletest//:gtest_main"],
    )
    if tested_cpus == None:
        tested_cpus = _cpus_of_folder(native.package_name(), lesser_cpus == "always")
    for cpu in cpus:
        tools = [cpu + "-linux-gnu-g++", "qemu-" + cpu]
        matrix_tags = [] if cpu in tested_cpus else _MATRIX_TAGS
        qemu_test(
            name = name + "_" + cpu,
            size = {"small": "medium", "medium": "large"}.get(size, "enormous"),
            args = args,
            binary = ":" + name if has_tools(*tools) else None,
            cpu = cpu,
            env = env,
            qemu = TOOLS["qemu-" + cpu],
            tags = tags + ["qemu"] + matrix_tags,
            target_compatible_with = requires(*tools),
        )
    if lesser_cpus:
        for cpu in _LESSER_CPUS:
            matrix_tags = {"always": [], "matrix": _MATRIX_TAGS}[lesser_cpus]
            _lesser_cpu_test(
                name,
                cpu,
                size = size,
                args = args + ["--gtest_filter=" + lesser_filter],
                env = env,
                tags = tags + matrix_tags,
            )

def _lesser_cpu_test(name, cpu, size, env, tags, **kwargs):
    family, model, capabilities = _LESSER_CPUS[cpu]
    native = family not in _PORTABLE_CPUS
    tools = ["qemu-" + family] + ([] if native else [family + "-linux-gnu-g++"])
    attrs = dict(
        kwargs,
        name = name + "_" + cpu,
        size = {"small": "medium", "medium": "large"}.get(size, "enormous"),
        binary = ":" + name if has_tools(*tools) else None,
        env = dict(env, **{_CAPABILITIES: capabilities}),
        model = model,
        qemu = TOOLS["qemu-" + family],
        tags = tags + ["qemu"],
        target_compatible_with = requires(*tools),
    )
    if native:
        native_qemu_test(**attrs)
    else:
        qemu_test(cpu = family, **attrs)

def isa_cc_library(name, srcs, isa, hdrs = [], copts = [], deps = [], **kwargs):
    """A cc_library compiled for one instruction set; without sources on CPUs that lack it.

    Args:
      name: of the library.
      srcs: compiled on the CPU of the instruction set only.
      isa: a row of ISAS in isa.bzl.
      hdrs: there on every CPU.
      copts: added to the flags of the row.
      deps: of the library.
      **kwargs: other attributes of cc_library.
    """
    cpu, flags = ISAS[isa]
    copts = KERNEL_COPTS + flags + copts
    nothing = "//conditions:default"
    condition = "@platforms//cpu:" + cpu
    cc_library(
        name = name,
        srcs = select({condition: srcs, nothing: []}) if cpu else srcs,
        hdrs = hdrs,
        copts = select({condition: copts, nothing: []}) if cpu else copts,
        deps = deps,
        **kwargs
    )

def vec_cc_library(name, srcs, copts = [], deps = [], visibility = None):
    """A cc_library of kernels that are written once and compiled for each width of vectors.

    Args:
      name: of the library.
      srcs: include cc/ops/vec/vec.h, which gives them the vectors and names what they define.
      copts: added to the flags of each instruction set.
      deps: of the library, among them the headers of srcs.
      visibility: of the library.
    """
    isas = ["avx2", "avx512", "portable"]
    for isa in isas:
        isa_cc_library(
            name = name + "_" + isa,
            srcs = srcs,
            copts = copts,
            isa = isa,
            local_defines = ["PAGEMILL_VEC_" + isa.upper()],
            visibility = ["//visibility:private"],
            deps = deps + ["//cc/ops/vec"],
        )
    cc_library(
        name = name,
        visibility = visibility,
        deps = [name + "_" + isa for isa in isas],
    )

def cc_benchmark(name, srcs, deps = [], tags = [], **kwargs):
    """A Google Benchmark program. `bazel test //...` builds it, so that it cannot rot, but does not
    run it."""
    cc_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        tags = tags + ["benchmark"],
        deps = deps + ["@google_benchmark//:benchmark_main"],
        **kwargs
    )
