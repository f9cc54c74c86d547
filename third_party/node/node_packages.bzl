"""Repository rule: Node with the npm packages of a lock.

    @<name>//:node    a script that runs Node; `require` finds the packages

Fetched by npm, with the user's own configuration, when a target that depends on it is built. npm
refuses a package whose hash is not the lock's, and runs no script of a package. To move the pins:

    cd third_party/node && npm update --package-lock-only --omit-lockfile-registry-resolved
"""

load("//tools/bazel:watch.bzl", "watched_path")

def _run(rctx, arguments, **kwargs):
    result = rctx.execute(arguments, timeout = 3600, **kwargs)
    if result.return_code != 0:
        fail("{}: {}{}".format(rctx.name, result.stdout, result.stderr))
    return result.stdout.strip()

def _impl(rctx):
    manifest = watched_path(rctx, rctx.attr.manifest)
    lock = watched_path(rctx, rctx.attr.lock)
    node = rctx.which("node")
    if not node:
        fail("{}: there is no node on PATH".format(rctx.name))
    digest = _run(rctx, ["sha256sum", str(lock)])[:12]
    name = "packages-" + digest
    folder = str(rctx.path(name))
    _run(rctx, ["mkdir", "-p", folder])
    _run(rctx, ["cp", str(manifest), folder + "/package.json"])
    _run(rctx, ["cp", str(lock), folder + "/package-lock.json"])

    rctx.report_progress("npm ci")
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    _run(rctx, install, working_directory = folder)

    # The path holds the lock's digest, so that tests rerun when the packages change, and no folder
    # of this checkout, so that another one finds in a disk cache what it ran here.
    rctx.file("node", """\
#!/bin/sh
NODE_PATH="$(dirname "$(readlink -f "$0")")/{}/node_modules" exec '{}' "$@"
""".format(name, node), executable = True)
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", "exports_files([\"node\"])\n")

node_packages = repository_rule(
    implementation = _impl,
    attrs = {
        "lock": attr.label(allow_single_file = True, mandatory = True),
        "manifest": attr.label(allow_single_file = True, mandatory = True),
    },
)
