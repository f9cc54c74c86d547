"""Repository rule: the C++ core of xgrammar, from its pinned source distribution.

    @xgrammar//:xgrammar    cc_library

pip downloads the distribution and compares its digest; nothing of it is installed. Fetched only when
a target that depends on it is built.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_VERSION = "0.2.8"
_SHA256 = "8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80"

# Parts of the distribution that are not built, with BUILD files and tests of their own.
_NOT_USED = ["3rdparty/cpptrace", "3rdparty/googletest", "cpp/tvm_ffi", "examples", "tests", "web"]

def _impl(rctx):
    rctx.file("requirements.txt", "xgrammar=={} --hash=sha256:{}\n".format(_VERSION, _SHA256))
    rctx.report_progress("pip download xgrammar==" + _VERSION)
    result = rctx.execute(
        [
            watched_path(rctx, rctx.attr._python),
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-binary=xgrammar",
            "--require-hashes",
            "--requirement=requirements.txt",
        ],
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("{}: {}{}".format(rctx.name, result.stdout, result.stderr))
    name = "xgrammar-" + _VERSION
    rctx.extract(name + ".tar.gz", stripPrefix = name)
    for folder in _NOT_USED:
        rctx.delete(folder)
    rctx.file("WORKSPACE", "")
    rctx.symlink(watched_path(rctx, rctx.attr._build_file), "BUILD.bazel")

xgrammar_source = repository_rule(
    implementation = _impl,
    attrs = {
        "_build_file": attr.label(default = "//third_party/xgrammar:xgrammar.BUILD"),
        "_python": attr.label(default = "@py_server//:python"),
    },
)
