"""Images of Triton kernels: compiled for the GPUs of a vendor, in a table for its plugin."""

load("//tools/bazel:requires.bzl", "has_tools")

# @triton//:packages as the only element, or nothing if no kernels are compiled: then it is not
# fetched. It has a compiler for x86-64 alone.
PACKAGES_FOR_CUDA = select({
    "@platforms//cpu:x86_64": ["@triton//:packages"],
    "//conditions:default": [],
}) if has_tools("nvcc") else []
PACKAGES_FOR_HIP = select({
    "//tools/bazel/flags:hip": ["@triton//:packages"],
    "//conditions:default": [],
})

_TABLE = """\
// Every image of this build.
#include <array>
#include <span>

#include "cuda/triton/image.h"

namespace pagemill::gpu {{

{declarations}
TritonImages AllTritonImages() {{
  static const std::array<std::span<const TritonImage>, {count}> kAll = {{{names}}};
  return kAll;
}}

}}  // namespace pagemill::gpu
"""

def _triton_images_impl(ctx):
    sources = []
    reports = []
    names = []
    architectures = ctx.attr.architectures if ctx.files.packages else []
    for kernel in ctx.files.kernels:
        op = kernel.basename[:-len(".py")]
        for architecture in architectures:
            name = "{}_{}".format(op, architecture)
            source = ctx.actions.declare_file("{}/{}.cc".format(ctx.label.name, name))
            report = ctx.actions.declare_file("{}/{}.json".format(ctx.label.name, name))
            ctx.actions.run(
                executable = ctx.file._python,
                arguments = [
                    ctx.file._compiler.path,
                    "--packages=" + ctx.files.packages[0].path,
                    "--kernel=" + op,
                    "--architecture=" + architecture,
                    "--source=" + source.path,
                    "--report=" + report.path,
                ],
                env = {"PYTHONPATH": "."},
                inputs = [kernel, ctx.file._python, ctx.file._compiler, ctx.file._specialization] +
                         ctx.files.packages,
                mnemonic = "TritonCompile",
                outputs = [source, report],
            )
            sources.append(source)
            reports.append(report)
            names.append("kImages_" + name)
    table = ctx.actions.declare_file("{}/images.cc".format(ctx.label.name))
    ctx.actions.write(table, _TABLE.format(
        declarations = "".join(["extern const std::span<const TritonImage> {};\n".format(name) for name in names]),
        count = len(names),
        names = ", ".join(names),
    ))
    return [
        DefaultInfo(files = depset(sources + [table])),
        OutputGroupInfo(reports = depset(reports)),
    ]

triton_images = rule(
    implementation = _triton_images_impl,
    attrs = {
        "architectures": attr.string_list(doc = "sm_90 (compiled for sm_90a), or gfx942.", mandatory = True),
        "kernels": attr.label_list(
            allow_files = [".py"],
            doc = "Files, each with a kernel of its name and SPECIALIZATIONS.",
        ),
        "packages": attr.label_list(allow_files = True, doc = "PACKAGES_FOR_CUDA or PACKAGES_FOR_HIP."),
        "_compiler": attr.label(allow_single_file = True, default = "//cuda/triton:compile_kernel.py"),
        "_python": attr.label(allow_single_file = True, default = "@py_server//:python"),
        "_specialization": attr.label(allow_single_file = True, default = "//cuda/triton:specialization.py"),
    },
    doc = """C++ sources with the machine code of kernels, and the table of all (image.h).

Without packages the table is empty: then no op has a Triton kernel.

The output group `reports` has what tests check of each image.""",
)
