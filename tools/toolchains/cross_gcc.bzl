"""Toolchain configuration for Debian's cross compilers, `g++-<triple>`."""

load(
    "@rules_cc//cc:cc_toolchain_config_lib.bzl",
    "feature",
    "flag_group",
    "flag_set",
    "tool_path",
)
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")

_COMPILE = [
    "assemble",
    "c-compile",
    "c++-compile",
    "c++-header-parsing",
    "c++-module-compile",
    "preprocess-assemble",
]

_LINK = [
    "c++-link-dynamic-library",
    "c++-link-executable",
    "c++-link-nodeps-dynamic-library",
]

_TOOLS = ["ar", "cpp", "dwp", "gcc", "gcov", "ld", "nm", "objcopy", "objdump", "strip"]

def _flags(name, actions, flags, enabled = False):
    return feature(
        name = name,
        enabled = enabled,
        flag_sets = [flag_set(actions = actions, flag_groups = [flag_group(flags = flags)])],
    )

def _cross_gcc_impl(ctx):
    triple = ctx.attr.cpu + "-linux-gnu"
    gcc_lib = "/usr/lib/gcc-cross/{}/{}".format(triple, ctx.attr.gcc_version)
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        abi_libc_version = "glibc",
        abi_version = "gcc",
        compiler = "gcc",
        cxx_builtin_include_directories = [
            gcc_lib + "/include",
            gcc_lib + "/include-fixed",
            "/usr/{}/include".format(triple),
        ],
        features = [
            feature(name = "supports_pic", enabled = True),
            _flags(
                "defaults",
                _COMPILE,
                ["-no-canonical-prefixes", "-fno-canonical-system-headers"] + ctx.attr.copts,
                enabled = True,
            ),
            _flags("libraries", _LINK, ["-lstdc++", "-lm", "-pthread"], enabled = True),
            _flags("opt", _COMPILE, ["-O2", "-DNDEBUG"]),
            _flags("dbg", _COMPILE, ["-g"]),
        ],
        host_system_name = "local",
        target_cpu = ctx.attr.cpu,
        target_libc = "glibc",
        target_system_name = triple,
        tool_paths = [
            tool_path(name = tool, path = "/usr/bin/{}-{}".format(triple, tool))
            for tool in _TOOLS
        ],
        toolchain_identifier = triple,
    )

cross_gcc = rule(
    implementation = _cross_gcc_impl,
    attrs = {
        "copts": attr.string_list(),
        "cpu": attr.string(mandatory = True),
        "gcc_version": attr.string(mandatory = True),
    },
)
