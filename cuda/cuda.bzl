"""Rule: CUDA sources compiled by nvcc into objects, to be listed in the srcs of a cc_library."""

load("@local_tools//:defs.bzl", "TOOLS")
load("//tools/bazel:requires.bzl", "requires")

# Data center and desktop GPUs of the Ampere, Hopper and Blackwell generations. The last one is also
# kept as PTX, for what comes after.
_ARCHITECTURES = ["80", "90a", "100a", "120"]
_PTX = "compute_120"

def _gencodes():
    flags = ["-gencode=arch=compute_{0},code=sm_{0}".format(arch) for arch in _ARCHITECTURES]
    return flags + ["-gencode=arch={0},code={0}".format(_PTX)]

def _cuda_objects_impl(ctx):
    objects = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file("{}_objs/{}.pic.o".format(ctx.label.name, src.basename))
        ctx.actions.run(
            arguments = _gencodes() + [
                "-std=c++20",
                "-O3",
                "-Xcompiler=-fPIC",
                "-I.",
                "-c",
                src.path,
                "-o",
                out.path,
            ],
            executable = TOOLS["nvcc"],
            inputs = depset([src] + ctx.files.hdrs),
            mnemonic = "CudaCompile",
            outputs = [out],
            use_default_shell_env = True,
        )
        objects.append(out)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
    },
)

def cuda_objects(name, srcs, hdrs = [], **kwargs):
    """Objects for every supported architecture; skipped where nvcc is missing.

    Args:
      name: of the target.
      srcs: .cu files.
      hdrs: every header of this tree that they include.
      **kwargs: attributes that every rule has.
    """
    _cuda_objects(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        target_compatible_with = requires("nvcc"),
        **kwargs
    )
