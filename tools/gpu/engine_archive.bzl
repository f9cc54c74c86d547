"""One archive of all C++ that bindings use, without the bindings."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _engine_archive_impl(ctx):
    archives = []
    for linked in ctx.attr.bindings[CcInfo].linking_context.linker_inputs.to_list():
        if linked.owner.package == ctx.attr.bindings.label.package or linked.owner.name == "nanobind":
            continue
        for library in linked.libraries:
            archive = library.pic_static_library or library.static_library
            if archive:
                archives.append(archive)
    out = ctx.actions.declare_file(ctx.label.name + ".a")
    ctx.actions.run_shell(
        # Archives of different packages have members of one name.
        command = """set -eu
out="$1"; shift
{ echo "create $out"; for archive in "$@"; do echo "addlib $archive"; done; echo save; echo end; } | ar -M
ar s "$out"
""",
        arguments = [out.path] + [archive.path for archive in archives],
        inputs = archives,
        mnemonic = "EngineArchive",
        outputs = [out],
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

engine_archive = rule(
    implementation = _engine_archive_impl,
    attrs = {"bindings": attr.label(providers = [CcInfo], mandatory = True)},
    doc = "`<name>.a` of the libraries that `bindings` links, except those of its own package and nanobind.",
)
