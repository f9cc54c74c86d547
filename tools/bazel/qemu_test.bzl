"""Rule: runs a test binary, built for another CPU, under qemu's user mode emulation."""

def _cpu_transition_impl(_settings, attr):
    platform = Label("//tools/toolchains:" + attr.cpu)
    return {"//command_line_option:platforms": [str(platform)]}

_cpu_transition = transition(
    implementation = _cpu_transition_impl,
    inputs = [],
    outputs = ["//command_line_option:platforms"],
)

# qemu finds the other CPU's dynamic linker and libraries below -L.
_LAUNCHER = """#!/bin/sh
{exports}exec {qemu} -cpu max -L /usr/{cpu}-linux-gnu "$TEST_SRCDIR/{binary}" "$@"
"""

def _qemu_test_impl(ctx):
    binary = ctx.attr.binary[0][DefaultInfo]
    launcher = ctx.actions.declare_file(ctx.label.name)
    exports = ["export {}='{}'\n".format(key, value) for key, value in ctx.attr.env.items()]
    ctx.actions.write(launcher, _LAUNCHER.format(
        binary = ctx.workspace_name + "/" + binary.files_to_run.executable.short_path,
        cpu = ctx.attr.cpu,
        exports = "".join(exports),
        qemu = ctx.attr.qemu,
    ), is_executable = True)
    runfiles = ctx.runfiles(files = [binary.files_to_run.executable])
    return [DefaultInfo(
        executable = launcher,
        runfiles = runfiles.merge(binary.default_runfiles),
    )]

qemu_test = rule(
    implementation = _qemu_test_impl,
    attrs = {
        "binary": attr.label(cfg = _cpu_transition),
        "cpu": attr.string(mandatory = True),
        "env": attr.string_dict(),
        "qemu": attr.string(mandatory = True, doc = "Absolute path of the emulator."),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    test = True,
)
