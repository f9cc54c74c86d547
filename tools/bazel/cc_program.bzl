"""C++ programs that people start with `bazel run`."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

# `bazel run` starts programs in a different directory. The binary is beside the launcher, both in
# the output tree and in runfiles.
_LAUNCHER = """#!/bin/sh
self="$(cd "$(dirname "$0")" && pwd)"
if [ -n "$BUILD_WORKING_DIRECTORY" ]; then cd "$BUILD_WORKING_DIRECTORY"; fi
exec "$self/{binary}" "$@"
"""

def _launcher_impl(ctx):
    launcher = ctx.actions.declare_file(ctx.label.name + ".sh")
    text = _LAUNCHER.format(binary = ctx.executable.binary.basename)
    ctx.actions.write(launcher, text, is_executable = True)
    runfiles = ctx.runfiles([ctx.executable.binary])
    runfiles = runfiles.merge(ctx.attr.binary[DefaultInfo].default_runfiles)
    return [DefaultInfo(executable = launcher, runfiles = runfiles)]

_launcher = rule(
    implementation = _launcher_impl,
    attrs = {"binary": attr.label(executable = True, cfg = "target", mandatory = True)},
    executable = True,
)

def cc_program(name, visibility = None, **kwargs):
    """A program whose relative paths are those of the directory that `bazel run` is typed in.

    Makes `<name>`, which starts `<name>_binary`.

    Args:
      name: of the program.
      visibility: of both.
      **kwargs: srcs, deps and what else a cc_binary has.
    """
    cc_binary(name = name + "_binary", visibility = visibility, **kwargs)
    _launcher(name = name, binary = ":" + name + "_binary", visibility = visibility)
