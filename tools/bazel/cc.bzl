"""C++ macros: tests on three CPUs, libraries for one instruction set, benchmarks."""

load("@local_tools//:defs.bzl", "TOOLS")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load("//tools/bazel:isa.bzl", "ISAS", "KERNEL_COPTS")
load("//tools/bazel:qemu_test.bzl", "qemu_test")
load("//tools/bazel:requires.bzl", "has_tools", "requires")

_PORTABLE_CPUS = ["aarch64", "s390x"]

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
        cpus = _PORTABLE_CPUS):
    """A googletest on this machine, and on emulated CPUs of other widths and byte orders.

    Args:
      name: the native test; `<name>_<cpu>` are the emulated ones, skipped where the cross compiler
        or qemu is missing.
      srcs: sources of the test.
      deps: what it tests; googletest and its main() are added.
      size: of the native test. The emulated ones are a size up: qemu is 10 to 30 times slower.
      data: files found by their path from the root.
      args: arguments of the program.
      env: environment variables of the test.
      copts: compiler flags.
      tags: of all the tests.
      cpus: which emulated CPUs.
    """
    cc_test(
        name = name,
        size = size,
        srcs = srcs,
        args = args,
        copts = copts,
        data = data,
        env = env,
        tags = tags,
        deps = deps + ["@googletest//:gtest_main"],
    )
    for cpu in cpus:
        tools = [cpu + "-linux-gnu-g++", "qemu-" + cpu]
        qemu_test(
            name = name + "_" + cpu,
            size = {"small": "medium", "medium": "large"}.get(size, "enormous"),
            args = args,
            binary = ":" + name if has_tools(*tools) else None,
            cpu = cpu,
            env = env,
            qemu = TOOLS["qemu-" + cpu],
            tags = tags + ["qemu"],
            target_compatible_with = requires(*tools),
        )

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
