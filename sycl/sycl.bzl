"""Macros of this tree: an op, the source text of kernels, and tests that need the runtime."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")
load("//tools/bazel:python.bzl", "pytest_test")

# With --config=sycl; the runtime is for this machine's CPU only (third_party/sycl).
WITH_SYCL = select({
    "//tools/bazel/flags:sycl": [],
    "//conditions:default": ["//tools/bazel:unavailable"],
})

def if_sycl(labels):
    """Labels of the runtime: none, so that it is not fetched, without --config=sycl."""
    return select({
        "//tools/bazel/flags:sycl": labels,
        "//conditions:default": [],
    })

def sycl_op(name, kernel = None, hdrs = [], deps = [], params_deps = []):
    """An op of this tree: the host's side, and its kernels as text.

    Args:
      name: of the op, its folder and its files.
      kernel: "act", "state", "latent" or "token", the module that its kernels belong to
        (//sycl/ops:kernel_modules); None if it launches those of other ops.
      hdrs: of the host's side, for other ops.
      deps: of the host's side, next to what every op needs.
      params_deps: of the kernels' parameters, `<name>_params.h`.
    """
    if kernel:
        params = name + "_params.h"
        native.filegroup(
            name = "kernel_text",
            srcs = [params, "{}_{}_kernel.h".format(name, kernel)],
            visibility = ["//sycl/ops:__pkg__"],
        )
        cc_library(
            name = "params",
            hdrs = [params],
            visibility = ["//sycl:__subpackages__"],
            deps = ["//sycl/ops:operands"] + params_deps,
        )
        deps = deps + [":params"]
    cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = hdrs,
        visibility = ["//sycl:__subpackages__"],
        deps = [
            "//cc/ops/" + name,
            "//sycl/ops:kernels",
            "//sycl/ops:launch",
        ] + deps,
    )

def kernel_files(name, srcs):
    """A list of C++ initializers, {"path", "text"}, for each of the files.

    Args:
      name: of the list's file.
      srcs: files, named as kernels include them.
    """
    native.genrule(
        name = name.replace(".", "_"),
        srcs = srcs,
        outs = [name],
        cmd = "for file in $(SRCS); do echo \"{\\\"$$file\\\", R\\\"KERNEL(\"; cat $$file; " +
              "echo ')KERNEL\"},'; done > $@",
    )

def _compiled_kernels_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        # Twice: what the runtime keeps of a module's source is not quite what it compiled, and is
        # compiled once more when a second process finds it. So the first need not optimize.
        command = "SYCL_PROGRAM_COMPILE_OPTIONS=-cl-opt-disable \"$1\" && \"$1\"",
        arguments = [ctx.executable.compiler.path],
        env = {"SYCL_CACHE_DIR": folder.path, "SYCL_CACHE_PERSISTENT": "1"},
        # The code is for this CPU.
        inputs = ctx.files.cpu,
        mnemonic = "SyclCompile",
        outputs = [folder],
        progress_message = "Compiling kernels for SYCL's CPU device",
        tools = [ctx.executable.compiler],
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

compiled_kernels = rule(
    doc = "A folder in which the runtime finds compiled kernels ($SYCL_CACHE_DIR).",
    implementation = _compiled_kernels_impl,
    attrs = {
        "compiler": attr.label(
            cfg = "target",
            doc = "A program that compiles them.",
            executable = True,
            mandatory = True,
        ),
        "cpu": attr.label_list(
            allow_files = True,
            doc = "A file that differs where the CPU does.",
        ),
    },
)

_COMPILED_KERNELS = ["//sycl/testing:compiled_kernels"]
_COMPILED_KERNELS_ENV = {
    # A test that is skipped has no file that $(rootpath) could name.
    "SYCL_CACHE_DIR": "sycl/testing/compiled_kernels",
    "SYCL_CACHE_PERSISTENT": "1",
}

def sycl_cc_test(name, srcs, deps, size = "medium", data = [], args = [], env = {}):
    """A googletest on the CPU device; skipped without --config=sycl.

    Args:
      name: of the test.
      srcs: its sources.
      deps: what it tests; googletest and its main() are added.
      size: of the test.
      data: files that it reads.
      args: of the test's command line.
      env: its environment, beside where the runtime finds compiled kernels.
    """
    cc_test(
        name = name,
        size = size,
        srcs = srcs,
        data = data + _COMPILED_KERNELS,
        args = args,
        env = dict(env, **_COMPILED_KERNELS_ENV),
        target_compatible_with = WITH_SYCL,
        deps = deps + ["@googletest//:gtest_main"],
    )

def sycl_pytest_test(name, data = [], env = {}, **kwargs):
    """Pytest files that run kernels; skipped without --config=sycl.

    Args:
      name: of the test.
      data: files that it reads.
      env: its environment, beside where the runtime finds compiled kernels.
      **kwargs: of pytest_test.
    """
    pytest_test(
        name = name,
        data = data + _COMPILED_KERNELS,
        env = dict(env, **_COMPILED_KERNELS_ENV),
        target_compatible_with = WITH_SYCL,
        **kwargs
    )

# By variable of the environment.
_PLUGIN_FILES = {
    "PAGEMILL_TEST_SYCL_CPU_PLUGIN": "//sycl/plugin:libpagemill_sycl_cpu.so",
    "PAGEMILL_TEST_SYCL_CPU_RUNTIME": "@sycl_runtime//:libintelocl.so",
    "PAGEMILL_TEST_SYCL_PLUGIN": "//sycl/plugin:libpagemill_sycl.so",
}

def sycl_plugin_test(name, **kwargs):
    """Pytest files that load the plugins of GPUs and of the CPU; skipped without --config=sycl.

    The environment has their paths, and that of the CPU's OpenCL device.

    Args:
      name: of the test.
      **kwargs: of sycl_pytest_test.
    """
    sycl_pytest_test(
        name = name,
        data = if_sycl(_PLUGIN_FILES.values()),
        env = {
            variable: "$(rootpath {})".format(file)
            for variable, file in _PLUGIN_FILES.items()
        },
        **kwargs
    )
