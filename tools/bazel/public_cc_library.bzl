"""Rule: a C++ library for hosts outside this tree, with its headers under `pagemill/`.

Sources of this tree include `"cc/scheduler/scheduler.h"`. A host includes
`"pagemill/scheduler/scheduler.h"`: this rule makes copies of the headers with that path, whose own
#include lines are changed likewise. The SDK archive packs the same copies, so hosts that use Bazel
and hosts that use the archive compile the same sources.
"""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

PublicHeadersInfo = provider(
    doc = "Headers as hosts include them.",
    fields = {"headers": "dict: path in #include lines -> File"},
)

_CXXOPT = "//command_line_option:cxxopt"

# The workspace of a host may be built as C++17.
def _cxx20_impl(settings, _attr):
    options = settings[_CXXOPT]
    standards = [option for option in options if option.startswith("-std=")]
    if standards and standards[-1] in ["-std=c++20", "-std=c++23", "-std=gnu++20", "-std=gnu++23"]:
        return {_CXXOPT: options}
    return {_CXXOPT: options + ["-std=c++20"]}

_cxx20 = transition(
    implementation = _cxx20_impl,
    inputs = [_CXXOPT],
    outputs = [_CXXOPT],
)

def _path_from_root(file):
    """The path of a file from the root of the workspace that it is in."""
    path = file.short_path
    return path.split("/", 2)[2] if path.startswith("../") else path

def _publish(ctx, header, path):
    """Returns a copy of `header` at `path` below the library's own folder of headers."""
    copy = ctx.actions.declare_file("{}_headers/{}".format(ctx.label.name, path))
    ctx.actions.expand_template(
        output = copy,
        substitutions = {
            before + ctx.attr.strip_include_prefix: before + ctx.attr.include_prefix
            for before in ["\"", "File: "]
        },
        template = header,
    )
    return copy

def _public_cc_library_impl(ctx):
    linked = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    headers = {}
    for header in ctx.files.hdrs or linked.compilation_context.headers.to_list():
        path = _path_from_root(header)
        own = header.owner.workspace_root == ctx.label.workspace_root
        if own and path.startswith(ctx.attr.strip_include_prefix):
            path = ctx.attr.include_prefix + path[len(ctx.attr.strip_include_prefix):]
            headers[path] = _publish(ctx, header, path)
    folder = "/".join([
        part
        for part in [
            ctx.bin_dir.path,
            ctx.label.workspace_root,
            ctx.label.package,
            ctx.label.name + "_headers",
        ]
        if part
    ])
    compilation_context = cc_common.create_compilation_context(
        headers = depset(headers.values()),
        system_includes = depset([folder]),
    )
    return [
        CcInfo(
            compilation_context = compilation_context,
            linking_context = linked.linking_context,
        ),
        DefaultInfo(files = depset(headers.values())),
        PublicHeadersInfo(headers = headers),
    ]

public_cc_library = rule(
    implementation = _public_cc_library_impl,
    attrs = {
        "deps": attr.label_list(cfg = _cxx20, doc = "What is linked.", providers = [CcInfo]),
        "hdrs": attr.label_list(
            allow_files = [".h"],
            doc = "The headers, if not all of the closure of `deps`.",
        ),
        "include_prefix": attr.string(default = "pagemill/"),
        "strip_include_prefix": attr.string(default = "cc/"),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    provides = [CcInfo, PublicHeadersInfo],
)
