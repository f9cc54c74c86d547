"""Repository rule for Bazel 4.2.3: what a Debian package put on this machine."""

def _impl(rctx):
    if not rctx.path(rctx.attr.path).exists:
        fail("{} is missing: apt-get install {}".format(rctx.attr.path, rctx.attr.package))
    path = rctx.attr.path
    rctx.symlink(path, "root/" + path.split("/")[-1] if path.endswith(".h") else "root")
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")
    rctx.file("WORKSPACE", "")

debian_source = repository_rule(
    implementation = _impl,
    attrs = {
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "package": attr.string(mandatory = True),
        "path": attr.string(
            doc = "A folder, found as root/ in the repository, or a header, found in root/.",
            mandatory = True,
        ),
    },
    local = True,
)
