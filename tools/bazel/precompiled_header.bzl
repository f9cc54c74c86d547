"""Macro: a header that g++ parses once, for the sources that include it first of all."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _precompiled_header_impl(ctx):
    # g++ looks for x.h.gch beside x.h, so both are made, in one folder.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    ctx.actions.symlink(output = compiled, target_file = ctx.file.compiled)
    return [
        DefaultInfo(files = depset([header, compiled])),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([header, compiled]),
        )),
    ]

_precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "compiled": attr.label(allow_single_file = True, mandatory = True),
        "header": attr.label(allow_single_file = [".cc"], mandatory = True),
    },
)

def precompiled_header(name, src, deps, visibility):
    """`<name>.h`, with what g++ made of it.

    A source that depends on it and has `-include <package>/<name>.h` among its copts uses what was
    compiled if its other flags agree. Otherwise, and by other compilers, the header is parsed.

    Args:
      name: of the target.
      src: a .cc file with nothing but #include lines.
      deps: the libraries whose headers these are.
      visibility: of the target.
    """
    cc_library(
        name = name + "_compiled",
        testonly = True,
        srcs = [src],
        copts = ["-xc++-header"],
        tags = ["manual"],  # the archive of it is of no use
        deps = deps,
    )
    native.filegroup(
        name = name + "_output",
        testonly = True,
        srcs = [name + "_compiled"],
        output_group = "compilation_outputs",
    )
    _precompiled_header(
        name = name,
        testonly = True,
        compiled = name + "_output",
        header = src,
        visibility = visibility,
    )
