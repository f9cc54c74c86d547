"""Python rules: libraries, programs and pytest files in one of the locked environments.

Both Bazel versions run the environment's own interpreter through a launcher script; there is no
Python toolchain. `import pagemill` finds python/ and `import tests...` the root.
"""

_ENVIRONMENTS = {
    "clients": "@py_clients//:python",
    "server": "@py_server//:python",
    "test": "@py_test//:python",
}

# $root is the root of the source tree inside the runfiles. Bazel sets it for tests; a program is
# started by `bazel run`, by its path, or by a test that has it in its data.
_LAUNCHER = """#!/bin/sh
case "$0" in
  /*) self="$0" ;;
  *) self="$PWD/$0" ;;
esac
if [ -d "$self.runfiles" ]; then runfiles="$self.runfiles"
else runfiles="${{RUNFILES_DIR:-$TEST_SRCDIR}}"; fi
root="$runfiles/{workspace}"
export PYTHONPATH="$root/python:$root"
{exports}{chdir}exec "$root/{python}" -P {arguments} "$@"
"""

# A program resolves relative paths against the user's current directory.
_CHDIR = """if [ -n "$BUILD_WORKING_DIRECTORY" ]; then cd "$BUILD_WORKING_DIRECTORY"; fi
"""

def _merge_runfiles(ctx, files):
    runfiles = ctx.runfiles(files = files)
    for target in ctx.attr.deps + ctx.attr.data:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    return runfiles

def _py_library_impl(ctx):
    return [DefaultInfo(
        files = depset(ctx.files.srcs),
        runfiles = _merge_runfiles(ctx, ctx.files.srcs + ctx.files.data),
    )]

_COMMON_ATTRS = {
    "data": attr.label_list(allow_files = True, doc = "Files there at run time."),
    "deps": attr.label_list(doc = "py_library targets."),
}

py_library = rule(
    implementation = _py_library_impl,
    attrs = dict(
        _COMMON_ATTRS,
        srcs = attr.label_list(allow_files = [".py", ".pyi"]),
    ),
    doc = "Python sources and what they need at run time.",
)

def _quote(text):
    return "'" + text.replace("'", "'\\''") + "'"

def _exports(ctx):
    """Shell lines that set `env`; every $(rootpath ...) in it becomes an absolute path."""
    lines = []
    for key, value in ctx.attr.env.items():
        marked = value.replace("$(rootpath ", "<root>$(rootpath ")
        expanded = _quote(ctx.expand_location(marked, ctx.attr.data))
        lines.append("export {}={}\n".format(key, expanded.replace("<root>", "'\"$root\"'/")))
    return "".join(lines)

def _launch(ctx, arguments, srcs, chdir):
    """Writes the launcher; returns the providers of an executable target."""

    # Not the target's bare name: //python:pagemill is beside the folder python/pagemill.
    launcher = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(launcher, _LAUNCHER.format(
        arguments = " ".join(arguments),
        chdir = chdir,
        exports = _exports(ctx),
        python = ctx.file.python.short_path,
        workspace = ctx.workspace_name,
    ), is_executable = True)
    files = srcs + ctx.files.data + [ctx.file.python]
    return [DefaultInfo(executable = launcher, runfiles = _merge_runfiles(ctx, files))]

_LAUNCHED_ATTRS = dict(
    _COMMON_ATTRS,
    env = attr.string_dict(doc = "Environment variables; $(rootpath LABEL) is expanded."),
    python = attr.label(allow_single_file = True, mandatory = True),
)

def _py_program_impl(ctx):
    arguments = ["-m", ctx.attr.module] + [_quote(arg) for arg in ctx.attr.args_prefix]
    return _launch(ctx, arguments, [], _CHDIR)

_py_program = rule(
    implementation = _py_program_impl,
    attrs = dict(
        _LAUNCHED_ATTRS,
        args_prefix = attr.string_list(),
        module = attr.string(mandatory = True),
    ),
    executable = True,
)

def _pytest_test_impl(ctx):
    files = ["\"$root/{}\"".format(src.short_path) for src in ctx.files.srcs]
    arguments = ["\"$root/{}\"".format(ctx.file._main.short_path), "\"$root\""] + files
    return _launch(ctx, arguments, ctx.files.srcs + [ctx.file._main], "")

_pytest_test = rule(
    implementation = _pytest_test_impl,
    attrs = dict(
        _LAUNCHED_ATTRS,
        srcs = attr.label_list(allow_files = [".py"], mandatory = True),
        _main = attr.label(allow_single_file = True, default = "//tools/bazel:pytest_main.py"),
    ),
    test = True,
)

def py_program(name, module, args_prefix = [], python_env = "server", **kwargs):
    """A program: `python -m <module> <args_prefix> <arguments of the command line>`.

    Args:
      name: of the program.
      module: dotted name of the module to run.
      args_prefix: arguments put before those of the command line.
      python_env: "server" or "test".
      **kwargs: deps, data, env and the attributes that every rule has.
    """
    _py_program(
        name = name,
        args_prefix = args_prefix,
        module = module,
        python = _ENVIRONMENTS[python_env],
        **kwargs
    )

def pytest_test(name, srcs, tags = [], python_env = "test", **kwargs):
    """A test made of pytest files; docs/build.md says what it sees.

    Args:
      name: of the test.
      srcs: files with tests; modules that they share belong in deps.
      tags: of the test; "python" is added.
      python_env: "test" or "clients".
      **kwargs: deps, data, env and the attributes that every test has.
    """
    _pytest_test(
        name = name,
        srcs = srcs,
        python = _ENVIRONMENTS[python_env],
        tags = tags + ["python"],
        **kwargs
    )
