"""Repository rule: buildifier, the linter of Bazel files, out of a pinned npm package.

    @buildifier//:buildifier    the program

Fetched by npm, with the user's own configuration, when a target that depends on it is built.
"""

_PACKAGE = "@bazel/buildifier@8.2.1"
_SHA256 = "b96ea9b13003036c801f52bee6f9b0314738f8432e5cb9d814c89f59292604ee"

# What `uname -sm` prints -> how the package calls it.
_HOSTS = {
    "Darwin arm64": "darwin_arm64",
    "Darwin x86_64": "darwin_amd64",
    "Linux aarch64": "linux_arm64",
    "Linux x86_64": "linux_amd64",
}

def _run(rctx, arguments):
    result = rctx.execute(arguments)
    if result.return_code != 0:
        fail("{}: {}{}".format(rctx.name, result.stdout, result.stderr))
    return result.stdout.strip()

def _impl(rctx):
    host = _run(rctx, ["uname", "-sm"])
    if host not in _HOSTS:
        fail("{}: {} has no build for {}".format(rctx.name, _PACKAGE, host))
    rctx.report_progress("npm pack " + _PACKAGE)
    archive = _run(rctx, ["npm", "pack", "--silent", _PACKAGE])
    digest = _run(rctx, ["sha256sum", archive]).split(" ")[0]
    if digest != _SHA256:
        fail("{}: {} has sha256 {}, not {}".format(rctx.name, archive, digest, _SHA256))
    rctx.extract(archive)
    rctx.symlink("package/buildifier-" + _HOSTS[host], "buildifier")
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", "exports_files([\"buildifier\"])\n")

buildifier_binary = repository_rule(implementation = _impl)
