"""Objects of GPU kernels for AMD GPUs: the sources of //cuda, compiled by clang's HIP."""

load("@local_tools//:defs.bzl", "TOOLS")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//cuda:cuda.bzl", "GpuSourcesInfo")
load("//tools/bazel:requires.bzl", "has_tools")

# Data center GPUs (MI200, MI300, MI350), whose wavefronts have 64 lanes, and desktop GPUs (Radeon
# 7000 and 9000), whose wavefronts have 32.
_ARCHITECTURES = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]

# What `//...` compiles for.
_TESTED_ARCHITECTURES = ["gfx942", "gfx1100", "gfx1201"]

_COMPILER = "clang++-22"

def _if_hip(values, otherwise = []):
    """`values` with --config=hip, if clang and what its driver calls are installed."""
    return select({
        "//tools/bazel/flags:hip": values if has_tools(_COMPILER, "ld.lld-22", "clang-offload-bundler-22") else otherwise,
        "//conditions:default": otherwise,
    })

# For `target_compatible_with`.
WITH_HIP = _if_hip([], otherwise = [Label("//tools/bazel:unavailable")])

def _folder(files, member):
    """The path of the folder that has this file."""
    for file in files:
        if file.path.endswith("/" + member):
            return file.path[:-len("/" + member)]
    fail("{} is not in @hip_sdk".format(member))

def _hip_objects_impl(ctx):
    include = _folder(ctx.files.sdk, "hip/hip_runtime.h")
    libraries = _folder(ctx.files.sdk, "ocml.bc")
    objects = []
    resources = []
    architectures = ["--offload-arch=" + arch for arch in ctx.attr.architectures]
    compiled_for = ",".join(["\"{}\"".format(arch) for arch in ctx.attr.architectures])
    defines = ctx.attr.defines + ["PAGEMILL_HIP_ARCHITECTURES=" + compiled_for]
    for unit in ctx.attr.sources[GpuSourcesInfo].units.to_list():
        src = unit.source
        stem = "{}/{}".format(ctx.label.name, src.short_path[:-len(".cc")])
        out = ctx.actions.declare_file(stem + ".pic.o")
        used = ctx.actions.declare_file(stem + ".resources")
        ctx.actions.run_shell(
            # What the compiler says of each kernel goes to a file; the rest is shown.
            command = """clang="$1" used="$2"; shift 2
"$clang" "$@" 2> "$used" || { grep -v 'remark:' "$used" >&2; exit 1; }
grep -E 'warning|error' "$used" >&2 || true""",
            arguments = [TOOLS[_COMPILER], used.path] + architectures + [
                "-std=c++20",
                "-O3",
                "-fPIC",
                "-Wall",
                "-Wextra",
                "-Wno-missing-field-initializers",
                # A header may have kernels that a source does not launch.
                "-Wno-unused-function",
                "-Rpass-analysis=kernel-resource-usage",
                "-I.",
                "-x",
                "hip",
                # The headers and libraries of third_party/hip, not those of a ROCm of this machine.
                "-nogpuinc",
                "-include",
                "__clang_hip_runtime_wrapper.h",
                "-isystem",
                include,
                "--rocm-device-lib-path=" + libraries,
                "-D__HIP_PLATFORM_AMD__",
            ] + ["-D" + define for define in defines] + [
                "-c",
                src.path,
                "-o",
                out.path,
            ],
            inputs = depset([src], transitive = [unit.headers, depset(ctx.files.sdk)]),
            mnemonic = "HipCompile",
            outputs = [out, used],
            use_default_shell_env = True,
        )
        resources.append(used)
        objects.append(out)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(resources = depset(resources)),
        ctx.attr.sources[CcInfo],
    ]

_hip_objects = rule(
    implementation = _hip_objects_impl,
    attrs = {
        "architectures": attr.string_list(),
        "defines": attr.string_list(),
        "sdk": attr.label_list(allow_files = True),
        "sources": attr.label(mandatory = True, providers = [CcInfo, GpuSourcesInfo]),
    },
)

def hip_objects(name, sources, **kwargs):
    """Objects by clang's HIP; skipped without --config=hip, and where clang is missing.

    `<name>` has code for the architectures that `//...` compiles for, `<name>_release` for all. The
    output group `resources` has what each kernel uses.

    Args:
      name: of the target.
      sources: gpu_sources.
      **kwargs: attributes that every rule has, and `defines`.
    """
    for suffix, architectures, tags in [
        ("", _TESTED_ARCHITECTURES, []),
        ("_release", _ARCHITECTURES, ["manual"]),
    ]:
        _hip_objects(
            name = name + suffix,
            sources = sources,
            architectures = architectures,
            sdk = _if_hip(["@hip_sdk//:files"]),
            tags = tags,
            target_compatible_with = WITH_HIP,
            **kwargs
        )

def _hip_library_impl(ctx):
    out = ctx.actions.declare_file("lib{}.so".format(ctx.label.name))
    libraries = []
    for target in ctx.attr.objects:
        for linked in target[CcInfo].linking_context.linker_inputs.to_list():
            for library in linked.libraries:
                archive = library.pic_static_library or library.static_library
                if archive and archive not in libraries:
                    libraries.append(archive)
    ctx.actions.run(
        executable = TOOLS[_COMPILER],
        arguments = [
            "-shared",
            "-Wl,--version-script=" + ctx.file.script.path,
            "-Wl,-Bsymbolic,--gc-sections,--no-undefined,--start-group",
        ] + [file.path for file in ctx.files.objects + libraries] + [
            "-Wl,--end-group",
            "-ldl",
            "-o",
            out.path,
        ] + ctx.attr.linkopts,
        inputs = [ctx.file.script] + ctx.files.objects + libraries,
        mnemonic = "HipLink",
        outputs = [out],
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

_hip_library = rule(
    implementation = _hip_library_impl,
    attrs = {
        "linkopts": attr.string_list(),
        "objects": attr.label_list(providers = [CcInfo], mandatory = True),
        "script": attr.label(allow_single_file = True, mandatory = True),
    },
)

def hip_library(name, objects, script, **kwargs):
    """`lib<name>.so` from what hip_objects made, without HIP's runtime.

    `<name>` has code for the architectures that `//...` compiles for, `<name>_release` for all.

    Args:
      name: of the target, and of the file.
      objects: hip_objects targets.
      script: a version script that says which symbols others see.
      **kwargs: attributes that every rule has, and `linkopts`.
    """
    for suffix, tags in [("", []), ("_release", ["manual"])]:
        _hip_library(
            name = name + suffix,
            objects = [label + suffix for label in objects],
            script = script,
            tags = tags,
            target_compatible_with = WITH_HIP,
            **kwargs
        )
