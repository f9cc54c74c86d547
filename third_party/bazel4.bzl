"""What Bazel 4.2.3 needs in place of Bazel modules, for this workspace and for those of hosts."""

load("//third_party:repositories.bzl", "repositories")
load("//tools/bazel:debian_source.bzl", "debian_source")
load("//tools/bazel:watch.bzl", "watched_path")

def _folder_impl(rctx):
    path = rctx.attr.path
    if not path.startswith("/"):
        third_party = watched_path(rctx, rctx.attr._third_party).dirname
        path = str(third_party.get_child("bazel4").get_child(path))
    for file in rctx.path(path).readdir():
        rctx.symlink(file, file.basename)

# Like local_repository, but found from this workspace even if a host's is the main one.
_folder = repository_rule(
    implementation = _folder_impl,
    attrs = {
        "path": attr.string(doc = "Absolute, or in third_party/bazel4.", mandatory = True),
        "_third_party": attr.label(allow_single_file = True, default = "//third_party:BUILD.bazel"),
    },
    local = True,
)

def bazel4_repositories():
    """Declares what the libraries depend on, except repositories that the workspace has already."""
    for name, path in {
        "platforms": "/usr/share/bazel/platforms",
        "remote_coverage_tools": "remote_coverage_tools",
        "rules_cc": "rules_cc",
        "rules_java": "rules_java",
    }.items():
        if not native.existing_rule(name):
            _folder(name = name, path = path)
    if not native.existing_rule("xxhash"):
        debian_source(
            name = "xxhash",
            build_file = Label("//third_party/xxhash:xxhash.BUILD"),
            package = "libxxhash-dev",
            path = "/usr/include/xxhash.h",
        )
    repositories()
