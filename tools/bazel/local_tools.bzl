"""Repository rule: which optional compilers, emulators and other tools this machine has.

`@local_tools//:defs.bzl` holds two dictionaries:

    TOOLS                 name -> absolute path, "" where missing
    CROSS_GCC_VERSIONS    CPU -> major version of its cross compiler, "" where missing

What needs a missing tool is skipped (see `requires` in //tools/bazel:requires.bzl), not broken.
"""

_CROSS_CPUS = ["aarch64", "s390x"]
_OTHER_TOOLS = [
    "clang++-22",
    "clang-offload-bundler-22",
    "cmake",
    "icpx",
    "ld.lld-22",
    "node",
    "npm",
    "nvcc",
]

def _cross_tools(cpu):
    return [cpu + "-linux-gnu-g++", "qemu-" + cpu]

def _dict(name, entries):
    rows = ["    \"{}\": \"{}\",\n".format(key, value) for key, value in entries.items()]
    return "{} = {{\n{}}}\n".format(name, "".join(rows))

def _impl(rctx):
    tools = {name: rctx.which(name) or "" for name in _OTHER_TOOLS}
    versions = {}

    # The cross toolchains are configured for x86-64 Linux hosts.
    host_fits = rctx.execute(["uname", "-sm"]).stdout.strip() == "Linux x86_64"
    for cpu in _CROSS_CPUS:
        gcc, qemu = _cross_tools(cpu)
        tools[gcc] = rctx.which(gcc) or "" if host_fits else ""
        tools[qemu] = rctx.which(qemu) or "" if host_fits else ""
        versions[cpu] = rctx.execute([tools[gcc], "-dumpversion"]).stdout.strip() if tools[gcc] else ""

    # For this machine's own family: for CPUs with fewer features.
    tools["qemu-x86_64"] = rctx.which("qemu-x86_64") or "" if host_fits else ""

    rctx.file("defs.bzl", _dict("TOOLS", tools) + _dict("CROSS_GCC_VERSIONS", versions))
    rctx.file("WORKSPACE", "")
    rctx.file("BUILD.bazel", "")

local_tools = repository_rule(
    implementation = _impl,
    configure = True,
    environ = ["PATH"],
    local = True,
)
