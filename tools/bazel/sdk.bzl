"""Rules that make the C and C++ SDK archive. It is reproducible: the same inputs give the same bytes.

An SDK has parts. A part is one library, the headers that a host includes to use it, a pkg-config
file and a CMake target; `sdk_shared_library` and `sdk_static_library` make them, `sdk` packs them.
"""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//tools/bazel:public_cc_library.bzl", "PublicHeadersInfo")

SdkPartInfo = provider(
    doc = "One library of an SDK.",
    fields = {
        "files": "depset of what the manifest names",
        "manifest": "dict for make_sdk.py, which documents it",
    },
)

_PART_ATTRS = {
    "package": attr.string(doc = "Name for pkg-config.", mandatory = True),
    "public": attr.label(
        doc = "The public_cc_library whose headers hosts include.",
        mandatory = True,
        providers = [CcInfo, PublicHeadersInfo],
    ),
    "roots": attr.string_list(doc = "Headers that hosts include, as they include them."),
    "summary": attr.string(mandatory = True),
    "target": attr.string(doc = "Name for CMake, after `Pagemill::`.", mandatory = True),
}

def _part(ctx, lib, link):
    headers = ctx.attr.public[PublicHeadersInfo].headers
    manifest = {
        "headers": {path: header.path for path, header in headers.items()},
        "lib": lib.path,
        "link": link,
        "package": ctx.attr.package,
        "roots": ctx.attr.roots,
        "summary": ctx.attr.summary,
        "target": ctx.attr.target,
    }
    return [
        DefaultInfo(files = depset([lib])),
        SdkPartInfo(files = depset([lib] + headers.values()), manifest = manifest),
    ]

def _shared_impl(ctx):
    return _part(ctx, ctx.file.lib, [])

sdk_shared_library = rule(
    implementation = _shared_impl,
    attrs = dict(
        _PART_ATTRS,
        lib = attr.label(allow_single_file = [".so"], mandatory = True),
    ),
)

def _objects(library):
    """Returns the objects of `library` and of all below it, each once."""
    objects = []
    for linker_input in library[CcInfo].linking_context.linker_inputs.to_list():
        for library in linker_input.libraries:
            members = library.pic_objects or library.objects
            if not members and (library.pic_static_library or library.static_library):
                fail("{} has no objects to pack".format(linker_input.owner))
            objects.extend(members or [])
    return objects

def _static_impl(ctx):
    lib = ctx.actions.declare_file("lib{}.a".format(ctx.label.name))
    objects = _objects(ctx.attr.public)
    toolchain = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    args = ctx.actions.args()
    args.use_param_file("@%s", use_always = True)
    args.add("qcsD")  # no times or owners; objects of equal names stay apart
    args.add(lib)
    args.add_all(objects)
    ctx.actions.run(
        arguments = [args],
        executable = toolchain.ar_executable,
        inputs = depset(objects, transitive = [toolchain.all_files]),
        mnemonic = "PagemillArchive",
        outputs = [lib],
        progress_message = "Archiving " + lib.short_path,
    )
    return _part(ctx, lib, ctx.attr.linkopts)

sdk_static_library = rule(
    implementation = _static_impl,
    attrs = dict(
        _PART_ATTRS,
        linkopts = attr.string_list(doc = "What hosts link besides."),
        _cc_toolchain = attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    ),
    doc = "lib<name>.a with everything below `public`, and the headers that `roots` reach.",
)

def _sdk_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".tar.gz")
    manifest = ctx.actions.declare_file(ctx.label.name + ".json")
    parts = [part[SdkPartInfo] for part in ctx.attr.parts]
    files = {
        file.short_path[len(ctx.attr.strip):]: file.path
        for file in ctx.files.examples
    }
    files.update({
        file.short_path: file.path
        for file in ctx.files.docs
    })
    files.update({"licenses/" + file.basename: file.path for file in ctx.files.notices})
    files["LICENSE"] = ctx.file._license.path
    files["README.md"] = ctx.file.readme.path
    ctx.actions.write(manifest, json.encode({
        "files": files,
        "parts": [part.manifest for part in parts],
        "version": ctx.attr.version,
    }))
    ctx.actions.run(
        arguments = [ctx.file._tool.path, manifest.path, out.path],
        executable = ctx.file._python,
        inputs = depset(
            [ctx.file._tool, ctx.file._python, ctx.file._license, ctx.file.readme, manifest] +
            ctx.files.docs + ctx.files.examples + ctx.files.notices,
            transitive = [part.files for part in parts],
        ),
        mnemonic = "PagemillPackage",
        outputs = [out],
        progress_message = "Packing " + out.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

sdk = rule(
    implementation = _sdk_impl,
    attrs = {
        "docs": attr.label_list(
            allow_files = [".md"],
            doc = "Pages, kept under their paths from the root.",
        ),
        "examples": attr.label_list(
            allow_files = True,
            doc = "Sources, kept under their paths after `strip`.",
        ),
        "notices": attr.label_list(
            allow_files = [".txt"],
            doc = "Of //third_party/notices: those of the third-party code in the parts.",
        ),
        "parts": attr.label_list(providers = [SdkPartInfo]),
        "readme": attr.label(allow_single_file = True, mandatory = True),
        "strip": attr.string(doc = "Cut off the examples' paths from the root."),
        "version": attr.string(mandatory = True),
        "_license": attr.label(allow_single_file = True, default = "//:LICENSE"),
        "_python": attr.label(allow_single_file = True, default = "@py_server//:python"),
        "_tool": attr.label(allow_single_file = True, default = "//tools/bazel:make_sdk.py"),
    },
)
