"""Rules: run a test binary under qemu's user mode emulation, as another CPU would run it."""

def _cpu_transition_impl(_settings, attr):
    platform = Label("//tools/toolchains:" + attr.cpu)
    return {"//command_line_option:platforms": [str(platform)]}

_cpu_transition = transition(
    implementation = _cpu_transition_impl,
    inputs = [],
    outputs = ["//command_line_option:platforms"],
)

_LAUNCHER = """#!/bin/sh
export PAGEMILL_TEST_EMULATED_CPU=1
{exports}exec {qemu} -cpu {model} {root} "$TEST_SRCDIR/{binary}" "$@"
"""

def _launch(ctx, binary, root):
    launcher = ctx.actions.declare_file(ctx.label.name)
    exports = ["export {}='{}'\n".format(key, value) for key, value in ctx.attr.env.items()]
    ctx.actions.write(launcher, _LAUNCHER.format(
        binary = ctx.workspace_name + "/" + binary.files_to_run.executable.short_path,
        exports = "".join(exports),
        model = ctx.attr.model,
        qemu = ctx.attr.qemu,
        root = root,
    ), is_executable = True)
    runfiles = ctx.runfiles(files = [binary.files_to_run.executable])
    return [DefaultInfo(
        executable = launcher,
        runfiles = runfiles.merge(binary.default_runfiles),
    )]

# qemu finds the other CPU's dynamic linker and libraries below -L.
def _qemu_test_impl(ctx):
    root = "-L /usr/{}-linux-gnu".format(ctx.attr.cpu)
    return _launch(ctx, ctx.attr.binary[0][DefaultInfo], root)

def _native_qemu_test_impl(ctx):
    return _launch(ctx, ctx.attr.binary[DefaultInfo], "")

_ATTRS = {
    "env": attr.string_dict(),
    "model": attr.string(default = "max", doc = "Which CPU of the family, as `qemu -cpu help` lists."),
    "qemu": attr.string(mandatory = True, doc = "Absolute path of the emulator."),
}

# A binary that is built for the CPU family `cpu`.
qemu_test = rule(
    implementation = _qemu_test_impl,
    attrs = dict(
        _ATTRS,
        binary = attr.label(cfg = _cpu_transition),
        cpu = attr.string(mandatory = True),
        _allowlist_function_transition = attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    ),
    test = True,
)

# A binary of this machine's family, on one of its lesser CPUs.
native_qemu_test = rule(
    implementation = _native_qemu_test_impl,
    attrs = dict(_ATTRS, binary = attr.label()),
    test = True,
)
