"""Rule: a header that g++ parses once, for the sources that include it first of all.

    cc_library(name = "x_compiled", srcs = ["x.cc"], copts = PRECOMPILE_COPTS, tags = ["manual"])
    filegroup(name = "x_output", srcs = [":x_compiled"], output_group = "compilation_outputs")
    precompiled_header(name = "x", compiled = ":x_output")

A source that depends on `:x` and has `-include package/x.h` among its copts uses what was compiled if
its other flags agree, and else parses the header, as every other compiler does.
"""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

PRECOMPILE_COPTS = ["-xc++-header"]

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

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "compiled": attr.label(allow_single_file = True, mandatory = True),
        "header": attr.label(allow_single_file = [".cc"], mandatory = True),
    },
)
