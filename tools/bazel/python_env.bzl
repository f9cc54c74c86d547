"""Repository rule: a virtual environment made from a lock file.

    @<name>//:python          a script that runs the environment's interpreter
    @<name>//:python_headers  cc_library: CPython's headers
    @<name>//:nanobind        cc_library: nanobind's headers and its compiled part
    @<name>//:env.bzl         WHEEL_TAG, for example "cp311-cp311-linux_x86_64"

From CPython 3.12 on, extensions use its stable ABI alone, so that all later versions load them
("cp312-abi3-linux_x86_64"). nanobind needs more than the stable ABI of 3.11 has.

The interpreter is $PAGEMILL_PYTHON or python3. A change of the lock or of $PAGEMILL_PYTHON makes the
environment anew. pip reads the user's own configuration (index, proxy, certificates).

The script names no folder of this checkout: another one finds in a disk cache what it ran here.
"""

load("//tools/bazel:watch.bzl", "watched_path")

_OLDEST_PYTHON = (3, 11)

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(["python"])

cc_library(
    name = "python_headers",
    hdrs = glob(["python_include/**/*.h"]),
    includes = ["python_include"],
)
"""

_NANOBIND = """
cc_library(
    name = "robin_map",
    hdrs = glob(["nanobind/ext/robin_map/include/**"]),
    includes = ["nanobind/ext/robin_map/include"],
    visibility = ["//visibility:private"],
)

cc_library(
    name = "nanobind",
    srcs = ["nanobind/src/nb_combined.cpp"],
    hdrs = glob(["nanobind/include/**/*.h"]),
    copts = ["-fvisibility=hidden", "-fno-strict-aliasing", "-w"],
    defines = %s,
    includes = ["nanobind/include"],
    textual_hdrs = glob(["nanobind/src/*"], exclude = ["nanobind/src/nb_combined.cpp"]),
    deps = [":python_headers", ":robin_map"],
)
"""

# Its content has the lock's digest and the interpreter, so that tests rerun when the environment
# changes.
_SCRIPT = """\
#!/bin/sh
# {version}
exec "$(dirname "$(readlink -f "$0")")/{venv}/bin/python" "$@"
"""

# Prints one fact per line; see _impl.
_FACTS = """
import platform, sys, sysconfig
print(sys.version.replace("\\n", " "))
stable = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
tag = "cp312-abi3" if stable else "cp{0}{1}-cp{0}{1}".format(*sys.version_info)
print(sysconfig.get_path("purelib"))
print(sysconfig.get_path("include"))
print("%s-%s_%s" % (tag, sys.platform, platform.machine()))
print(["Py_LIMITED_API=0x030C0000"] if stable else [])
"""

def _run(rctx, what, arguments):
    result = rctx.execute(arguments, timeout = 3600)
    if result.return_code != 0:
        fail("python_env {}: {}\n{}{}".format(rctx.name, what, result.stdout, result.stderr))
    return result.stdout

def _interpreter(rctx):
    """Returns the path of a Python that is new enough, or fails saying what to install."""
    advice = "Install Python {}.{} or newer, or name one in PAGEMILL_PYTHON.".format(*_OLDEST_PYTHON)
    named = rctx.os.environ.get("PAGEMILL_PYTHON")
    python = named or rctx.which("python3")
    if not python:
        fail("python_env: there is no python3 on PATH. " + advice)
    check = "import sys; sys.exit(sys.version_info < ({}, {}))".format(*_OLDEST_PYTHON)
    if rctx.execute([python, "-c", check]).return_code != 0:
        fail("python_env: {} is missing or too old. {}".format(python, advice))
    return python

def _impl(rctx):
    lock = watched_path(rctx, rctx.attr.lock)
    python = _interpreter(rctx)
    digest = _run(rctx, "cannot hash the lock.", ["sha256sum", str(lock)])[:12]
    folder = "venv-" + digest
    venv = str(rctx.path(folder))
    venv_python = venv + "/bin/python"

    rctx.report_progress("creating the virtual environment")
    no_venv = "cannot create a virtual environment (on Debian: apt-get install python3-venv)."
    _run(rctx, no_venv, [python, "-m", "venv", venv])

    rctx.report_progress("pip install -r " + rctx.attr.lock.name)
    install = [venv_python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if rctx.attr.require_hashes:
        install.append("--require-hashes")
    _run(rctx, "pip cannot install the lock.", install + ["-r", str(lock)])

    facts = _run(rctx, "python is broken.", [venv_python, "-c", _FACTS])
    version, site, include, tag, defines = facts.split("\n")[:5]
    if not rctx.path(include + "/Python.h").exists:
        fail("python_env: {}/Python.h is missing (on Debian: apt-get install python3-dev)".format(
            include,
        ))
    rctx.symlink(include, "python_include")
    build = _BUILD
    if rctx.path(site + "/nanobind").exists:
        rctx.symlink(site + "/nanobind", "nanobind")
        build += _NANOBIND % defines

    rctx.file("python", _SCRIPT.format(version = version, venv = folder), executable = True)
    rctx.file("env.bzl", "WHEEL_TAG = \"{}\"\n".format(tag))
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", build)

python_env = repository_rule(
    implementation = _impl,
    attrs = {
        "lock": attr.label(allow_single_file = True, mandatory = True),
        "require_hashes": attr.bool(doc = "Refuse a package whose hash is not in the lock."),
    },
    environ = ["PAGEMILL_PYTHON"],
)
