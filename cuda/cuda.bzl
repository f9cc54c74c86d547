"""Rules of this tree: one source compiled by nvcc for GPUs, and by g++ for the emulation."""

load("@local_tools//:defs.bzl", "TOOLS")
load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//tools/bazel:cc.bzl", "PRECOMPILED_GTEST", "PRECOMPILED_GTEST_COPTS")
load("//tools/bazel:requires.bzl", "has_tools", "requires")

# Data center and desktop GPUs of the Ampere, Hopper and Blackwell generations. Code runs on later
# GPUs of the same generation, too (8.6, 8.9, 10.3, 12.1), if it is not for one alone, as 90a is. The
# last one is also kept as PTX, for what comes after.
_ARCHITECTURES = ["80", "90a", "100", "120"]
_PTX = "compute_120"

# What `//...` compiles for.
_TESTED_ARCHITECTURES = ["80", "90a"]

# Kernels for the emulation, most of whose time goes by between their instructions: at -O1 they
# compile in two thirds of the time.
_EMULATION_COPTS = ["-O1"]

# What //cuda:headers include.
_HEADER_DEPS = [
    "//cc/base:status",
    "//cc/device",
    "//cc/device:capabilities",
    "//cc/device:stream",
    "//cc/ops:op",
    "//cc/tensor:float8",
    "//cc/tensor:tensor_view",
]

_GpuObjectsInfo = provider(
    doc = "What a plugin links.",
    fields = {"objects": "depset of the objects of a target and of those that it depends on"},
)

GpuSourcesInfo = provider(
    doc = "Sources in the vocabulary of gpu_vendor.h, for //hip to compile; CcInfo has what they link.",
    fields = {"units": "depset of structs: `source`, a file, and `headers`, a depset that it may include"},
)

def _gpu_sources_impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    return [
        DefaultInfo(files = depset(ctx.files.srcs)),
        GpuSourcesInfo(units = depset(
            [struct(source = src, headers = headers) for src in ctx.files.srcs],
            transitive = [dep[GpuSourcesInfo].units for dep in ctx.attr.gpu_deps],
        )),
        cc_common.merge_cc_infos(
            cc_infos = [dep[CcInfo] for dep in ctx.attr.deps + ctx.attr.gpu_deps],
        ),
    ]

_gpu_sources = rule(
    implementation = _gpu_sources_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "gpu_deps": attr.label_list(providers = [CcInfo, GpuSourcesInfo]),
        # Any: a library without headers gives none.
        "hdrs": attr.label_list(allow_files = True),
        "srcs": attr.label_list(allow_files = [".cc"]),
    },
)

def gpu_sources(name, srcs = [], hdrs = [], deps = [], gpu_deps = [], **kwargs):
    """Sources and what they include, for //hip.

    Args:
      name: of the target.
      srcs: .cc files.
      hdrs: headers of this tree that they include, except those of //cuda:headers.
      deps: C++ libraries whose headers they include.
      gpu_deps: further gpu_sources, to be compiled too.
      **kwargs: attributes that every rule has.
    """
    _gpu_sources(
        name = name,
        srcs = srcs,
        hdrs = hdrs + ["//cuda:headers"],
        gpu_deps = gpu_deps,
        deps = [dep for dep in _HEADER_DEPS if dep not in deps] + deps,
        **kwargs
    )

def _gencodes(architectures):
    flags = ["-gencode=arch=compute_{0},code=sm_{0}".format(arch) for arch in architectures]
    if architectures == _ARCHITECTURES:
        flags.append("-gencode=arch={0},code={0}".format(_PTX))
    return flags

def _include_flags(ctx):
    """Of folders beside the root: those of foreign headers, and of headers that a rule makes."""
    flags = []
    for library in ctx.attr.libraries:
        # Before the toolkit's own folders, where -isystem would come after them.
        context = library[CcInfo].compilation_context
        flags += ["-I" + folder for folder in context.includes.to_list() + context.system_includes.to_list()]
    if flags:
        flags.append("--disable-warnings")
    if [file for file in ctx.files.hdrs if not file.is_source]:
        flags.append("-I" + ctx.bin_dir.path)
    return flags

def _cuda_objects_impl(ctx):
    objects = []
    resources = []
    headers = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps + ctx.attr.libraries]
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file("{}_objs/{}.pic.o".format(ctx.label.name, src.basename))
        used = ctx.actions.declare_file("{}_objs/{}.resources".format(ctx.label.name, src.basename))
        ctx.actions.run_shell(
            # What ptxas says of each kernel goes to a file; the rest is shown.
            command = """nvcc="$1" used="$2"; shift 2
"$nvcc" "$@" 2> "$used" || { cat "$used" >&2; exit 1; }
grep -E 'warning|error' "$used" >&2 || true""",
            arguments = [TOOLS["nvcc"], used.path] + _gencodes(ctx.attr.architectures) +
                        _include_flags(ctx) + [
                "-std=c++20",
                "-O3",
                "-Xcompiler=-fPIC",
                "-Xptxas=-v",
                "-I.",
                "-x=cu",
                # Reports assignments to values of [[nodiscard]] types.
                "-diag-suppress=2810",
                # Kernels call constexpr functions of //cc.
                "--expt-relaxed-constexpr",
            ] + ctx.attr.copts + ["-D" + define for define in ctx.attr.defines] + [
                "-c",
                src.path,
                "-o",
                out.path,
            ],
            inputs = depset([src] + ctx.files.hdrs, transitive = headers),
            mnemonic = "CudaCompile",
            outputs = [out, used],
            use_default_shell_env = True,
        )
        resources.append(used)
        objects.append(out)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(resources = depset(resources)),
        _GpuObjectsInfo(objects = depset(
            objects,
            transitive = [dep[_GpuObjectsInfo].objects for dep in ctx.attr.gpu_deps],
        )),
        cc_common.merge_cc_infos(
            cc_infos = [dep[CcInfo] for dep in ctx.attr.deps + ctx.attr.gpu_deps],
        ),
    ]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "architectures": attr.string_list(),
        "copts": attr.string_list(),
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "gpu_deps": attr.label_list(providers = [CcInfo, _GpuObjectsInfo]),
        # Any: a library without headers gives none.
        "hdrs": attr.label_list(allow_files = True),
        "libraries": attr.label_list(providers = [CcInfo]),
        "srcs": attr.label_list(allow_files = [".cc"], mandatory = True),
    },
)

def _part(label, suffix):
    """The label of a part of a gpu_library."""
    if ":" not in label:
        label += ":" + label.split("/")[-1]
    return label + suffix

def cuda_objects(
        name,
        srcs,
        hdrs = [],
        deps = [],
        gpu_deps = [],
        defines = [],
        release_srcs = None,
        architectures = _ARCHITECTURES,
        **kwargs):
    """Objects by nvcc; skipped where it is missing.

    `<name>` has code for the architectures that `//...` compiles for, `<name>_release` for all. The
    output group `resources` has what each kernel uses.

    Args:
      name: of the target.
      srcs: .cc files with kernels.
      hdrs: headers of this tree that they include, except those of //cuda:headers.
      deps: C++ libraries whose headers they include.
      gpu_deps: gpu_libraries that they are linked with.
      defines: macros, as `NAME` or `NAME=VALUE`.
      release_srcs: of `<name>_release`, if others than srcs; it has PAGEMILL_RELEASE defined.
      architectures: those that the code is for.
      **kwargs: `libraries`, cc_libraries of foreign headers; `copts`, flags of nvcc; and attributes
        that every rule has.
    """
    for suffix, compiled, sources, tags, more_defines in [
        ("", _TESTED_ARCHITECTURES, srcs, [], []),
        ("_release", _ARCHITECTURES, release_srcs or srcs, ["manual"], ["PAGEMILL_RELEASE"]),
    ]:
        _cuda_objects(
            name = name + suffix,
            srcs = sources,
            defines = defines + more_defines,
            hdrs = hdrs + [_part(dep, "_headers") for dep in gpu_deps] + ["//cuda:headers"],
            architectures = [each for each in compiled if each in architectures],
            tags = tags,
            target_compatible_with = requires("nvcc"),
            deps = [dep for dep in _HEADER_DEPS if dep not in deps] + deps,
            gpu_deps = [_part(dep, "_objects" + suffix) for dep in gpu_deps],
            **kwargs
        )

def cuda_library(name, srcs, hdrs = [], **kwargs):
    """Code for NVIDIA GPUs alone, such as kernels of libraries: `<name>_objects` by nvcc.

    `<name>_resources` has what its kernels use. A gpu_library has it among its `cuda_deps`.

    Args:
      name: prefix of the targets.
      srcs: .cc files.
      hdrs: their headers.
      **kwargs: of cuda_objects.
    """
    native.filegroup(
        name = name + "_headers",
        srcs = hdrs,
        visibility = ["//cuda:__subpackages__"],
    )
    cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        **kwargs
    )
    native.filegroup(
        name = name + "_resources",
        srcs = [name + "_objects"],
        output_group = "resources",
        visibility = ["//cuda:__subpackages__"],
    )

def _cuda_plugin_impl(ctx):
    out = ctx.actions.declare_file("lib{}.so".format(ctx.label.name))
    objects = ctx.attr.objects[_GpuObjectsInfo].objects.to_list()
    libraries = []
    for linked in ctx.attr.objects[CcInfo].linking_context.linker_inputs.to_list():
        for library in linked.libraries:
            archive = library.pic_static_library or library.static_library
            if archive:
                libraries.append(archive)
    ctx.actions.run(
        executable = TOOLS["nvcc"],
        arguments = [
            "-shared",
            # The driver is opened when the first function of the runtime is called.
            "-cudart=static",
            "-Xlinker=--version-script=" + ctx.file.script.path,
            "-Xlinker=-Bsymbolic,--gc-sections,--no-undefined,--start-group",
        ] + [file.path for file in objects + libraries] + [
            "-Xlinker=--end-group",
            "-o",
            out.path,
        ],
        inputs = [ctx.file.script] + objects + libraries,
        mnemonic = "CudaLink",
        outputs = [out],
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

_cuda_plugin = rule(
    implementation = _cuda_plugin_impl,
    attrs = {
        "objects": attr.label(providers = [CcInfo, _GpuObjectsInfo], mandatory = True),
        "script": attr.label(allow_single_file = True, mandatory = True),
    },
)

def cuda_plugin(name, objects, script, **kwargs):
    """`lib<name>.so` from what cuda_objects made, without the driver and with the runtime.

    `<name>` has code for the architectures that `//...` compiles for, `<name>_release` for all.

    Args:
      name: of the target, and of the file.
      objects: a cuda_objects target.
      script: a version script that says which symbols others see.
      **kwargs: attributes that every rule has.
    """
    for suffix, tags in [("", []), ("_release", ["manual"])]:
        _cuda_plugin(
            name = name + suffix,
            objects = objects + suffix,
            script = script,
            tags = tags,
            target_compatible_with = requires("nvcc"),
            **kwargs
        )

def _further_words(hopper_srcs, amd_srcs):
    """Libraries of words of some GPUs, for the emulation."""
    return (["//cuda:wgmma"] if hopper_srcs else []) + (["//cuda:matrix_cores"] if amd_srcs else [])

def gpu_library(
        name,
        srcs,
        hdrs = [],
        deps = [],
        gpu_deps = [],
        cuda_deps = [],
        hopper_srcs = [],
        amd_srcs = [],
        **kwargs):
    """Code of this tree: `<name>` for the emulation, `<name>_objects` by nvcc.

    `<name>_resources` has what its kernels use; `<name>_sources` is for //hip.

    Args:
      name: of the target.
      srcs: .cc files.
      hdrs: their headers.
      deps: C++ libraries of //cc.
      gpu_deps: gpu_libraries of other packages.
      cuda_deps: cuda_libraries, which its code uses if nvcc compiles it.
      hopper_srcs: .cc files with words of gpu_wgmma.h, which nvcc compiles for GPUs of compute
        capability 9.0 alone, as `<name>_hopper_objects`.
      amd_srcs: .cc files with words of gpu_matrix_cores.h, for //hip and the emulation alone.
      **kwargs: attributes that every rule has.
    """
    if hopper_srcs:
        cuda_library(
            name = name + "_hopper",
            srcs = hopper_srcs,
            hdrs = hdrs + ["//cuda:wgmma_headers"],
            architectures = ["90a"],
            defines = ["NDEBUG"],  # of CUTLASS's checks
            gpu_deps = gpu_deps,
            # Not fetched where its users are skipped.
            libraries = ["@flashinfer//:cutlass"] if has_tools("nvcc") else [],
            visibility = ["//cuda:__subpackages__"],
            deps = deps,
        )
    hopper_deps = [":{}_hopper".format(name)] if hopper_srcs else []
    native.filegroup(
        name = name + "_headers",
        srcs = hdrs,
        visibility = ["//cuda:__subpackages__"],
    )
    cc_library(
        name = name,
        testonly = True,
        srcs = srcs + hopper_srcs + amd_srcs,
        hdrs = hdrs,
        copts = _EMULATION_COPTS,
        # Switches stacks by x86-64 instructions.
        target_compatible_with = ["@platforms//cpu:x86_64"],
        deps = deps + gpu_deps + ["//cuda:emulated"] + _further_words(hopper_srcs, amd_srcs),
        **kwargs
    )
    cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps,
        gpu_deps = gpu_deps + cuda_deps + hopper_deps,
        **kwargs
    )
    gpu_sources(
        name = name + "_sources",
        srcs = srcs + amd_srcs,
        hdrs = hdrs + [_part(dep, "_headers") for dep in gpu_deps] +
               (["//cuda:matrix_core_headers"] if amd_srcs else []),
        visibility = ["//cuda:__subpackages__"],
        deps = deps,
    )
    native.filegroup(
        name = name + "_resources",
        srcs = [name + "_objects"] + [dep + "_objects" for dep in hopper_deps],
        output_group = "resources",
        visibility = ["//cuda:__subpackages__"],
    )

def gpu_op(
        name,
        srcs = None,
        hdrs = [],
        deps = [],
        gpu_deps = [],
        cuda_deps = [],
        hopper_srcs = [],
        amd_srcs = [],
        test_deps = [],
        emulated_deps = [],
        size = "small",
        asan_filter = "*Lanes32Seed1"):
    """Kernels of an op: a gpu_library, and its conformance in the emulation.

    `<name>_checks` is the conformance for //cuda/testing:plugin_conformance. `<name>_asan_test` runs
    it once, with kernels that AddressSanitizer watches, and `<name>_test` the rest: with another
    order of threads, with the other size of warps, and with amd_srcs on an AMD GPU of the first size.

    Args:
      name: of the op, and of the package.
      srcs: sources; `<name>.cc` if not given.
      hdrs: headers that other ops may use.
      deps: libraries of //cc beside those of the op.
      gpu_deps: gpu_libraries.
      cuda_deps: cuda_libraries, which its code uses if nvcc compiles it.
      hopper_srcs: as gpu_library has them.
      amd_srcs: likewise.
      test_deps: of the test, beside the op's conformance body.
      emulated_deps: libraries of the tests in the emulation alone.
      size: of the tests.
      asan_filter: which tests AddressSanitizer watches.
    """
    srcs = srcs or [name + ".cc"]
    gpu_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        gpu_deps = ["//cuda/device:gpu_device"] + gpu_deps,
        cuda_deps = cuda_deps,
        hopper_srcs = hopper_srcs,
        amd_srcs = amd_srcs,
        visibility = ["//cuda:__subpackages__"],
        deps = ["//cc/ops/" + name] + deps,
    )
    # For any place to run kernels: linked without those of the emulation, too.
    checks = depset([
        "//cc/ops/" + name,
        "//cc/ops/{0}:{0}_conformance".format(name),
        "//cuda/ops/testing:gpu_conformance",
        "//cuda:emulated",
    ] + test_deps).to_list()
    cc_library(
        name = name + "_checks",
        testonly = True,
        srcs = [name + "_test.cc"],
        copts = PRECOMPILED_GTEST_COPTS,
        target_compatible_with = ["@platforms//cpu:x86_64"],
        visibility = ["//cuda:__pkg__"],
        deps = checks + [PRECOMPILED_GTEST],
        alwayslink = True,
    )
    emulated = emulated_deps + ["//cuda/ops/testing:emulated_gpu", "@googletest//:gtest_main"]
    cc_test(
        name = name + "_test",
        size = size,
        args = ["--gtest_filter=-" + asan_filter + ("" if amd_srcs else ":*Amd*")],
        target_compatible_with = ["@platforms//cpu:x86_64"],
        # In this order: a library is searched for what those before it need.
        deps = [":{}_checks".format(name), ":" + name] + emulated,
    )
    cc_test(
        name = name + "_asan_test",
        size = size,
        srcs = srcs + hopper_srcs + amd_srcs + hdrs + [name + "_test.cc"],
        args = ["--gtest_filter=" + asan_filter],
        copts = ["-fsanitize=address"] + _EMULATION_COPTS,
        # What is on the stack of a thread that never ends is not freed.
        env = {"ASAN_OPTIONS": "detect_leaks=0"},
        linkopts = ["-fsanitize=address"],
        target_compatible_with = ["@platforms//cpu:x86_64"],
        deps = depset(
            ["//cuda/device:gpu_device"] + deps + gpu_deps + checks + emulated +
            _further_words(hopper_srcs, amd_srcs),
        ).to_list(),
    )
