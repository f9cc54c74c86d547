"""Rules that make Python wheels. They are reproducible: the same inputs give the same bytes."""

def _runtime_files(deps):
    return depset(transitive = [
        depset(transitive = [dep[DefaultInfo].files, dep[DefaultInfo].default_runfiles.files])
        for dep in deps
    ])

def _name_and_path(file):
    return "{}={}".format(file.short_path, file.path)

def _run_tool(ctx, args, inputs, out):
    args.use_param_file("@%s", use_always = True)
    args.set_param_file_format("multiline")
    ctx.actions.run(
        arguments = [ctx.file._tool.path, args],
        executable = ctx.file._python,
        inputs = depset([ctx.file._tool, ctx.file._python], transitive = [inputs]),
        mnemonic = "PagemillPackage",
        outputs = [out],
        progress_message = "Packing " + out.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

_PYTHON = attr.label(allow_single_file = True, default = "@py_server//:python")
_LICENSE = attr.label(allow_single_file = True, default = "//:LICENSE")

def _wheel_impl(ctx):
    stem = "{}-{}-{}".format(ctx.attr.distribution, ctx.attr.version, ctx.attr.tag)
    out = ctx.actions.declare_file(stem + ".whl")
    files = _runtime_files(ctx.attr.deps)
    args = ctx.actions.args()
    args.add(ctx.attr.distribution, format = "--distribution=%s")
    args.add(ctx.attr.version, format = "--version=%s")
    args.add(ctx.attr.tag, format = "--tag=%s")
    args.add(ctx.attr.summary, format = "--summary=%s")
    args.add(ctx.file.requires, format = "--requires=%s")
    args.add(ctx.file._license, format = "--license=%s")
    args.add(ctx.attr.root, format = "--root=%s")
    args.add(str(ctx.attr.largest_mb), format = "--largest-mb=%s")
    args.add_all(ctx.files.notices, format_each = "--notice=%s")
    args.add_all(ctx.attr.console_scripts, format_each = "--console-script=%s")
    args.add_all(ctx.attr.entry_points, format_each = "--entry-point=%s")
    extras = []
    for target, name in ctx.attr.extras.items():
        extras += target[DefaultInfo].files.to_list()
        args.add("--extra={}={}".format(name, target[DefaultInfo].files.to_list()[0].path))
    args.add(out, format = "--out=%s")
    args.add_all(files, map_each = _name_and_path)
    inputs = depset([ctx.file.requires, ctx.file._license] + ctx.files.notices + extras, transitive = [files])
    return _run_tool(ctx, args, inputs, out)

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "console_scripts": attr.string_list(doc = "As in 'name=module:function'."),
        "deps": attr.label_list(doc = "py_library targets; their files below root are packed."),
        "distribution": attr.string(mandatory = True),
        "entry_points": attr.string_list(doc = "As in 'group:name=module:object'."),
        "extras": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Files like `requires`, each with the name of the extra it stands for.",
        ),
        "largest_mb": attr.int(doc = "Millions of bytes: a larger wheel is an error.", mandatory = True),
        "notices": attr.label_list(
            allow_files = [".txt"],
            doc = "Of //third_party/notices: those of the third-party code in the files.",
        ),
        "requires": attr.label(
            allow_single_file = True,
            doc = "A file with one direct requirement a line.",
            mandatory = True,
        ),
        "root": attr.string(default = "python/"),
        "summary": attr.string(),
        "tag": attr.string(doc = "WHEEL_TAG of @py_server//:env.bzl.", mandatory = True),
        "version": attr.string(mandatory = True),
        "_license": _LICENSE,
        "_python": _PYTHON,
        "_tool": attr.label(allow_single_file = True, default = "//tools/bazel:make_wheel.py"),
    },
)

def _portable_wheel_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        arguments = [ctx.file._tool.path, ctx.file.wheel.path, out.path] + ctx.attr.excludes,
        executable = ctx.file._python,
        inputs = [ctx.file._tool, ctx.file._python, ctx.file.wheel],
        mnemonic = "PagemillPortable",
        outputs = [out],
        progress_message = "Naming the platform of " + ctx.file.wheel.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

portable_wheel = rule(
    implementation = _portable_wheel_impl,
    attrs = {
        "excludes": attr.string_list(doc = "Libraries that another package brings."),
        "wheel": attr.label(allow_single_file = [".whl"], mandatory = True),
        "_python": attr.label(allow_single_file = True, default = "@py_release//:python"),
        "_tool": attr.label(allow_single_file = True, default = "//tools/bazel:portable_wheel.py"),
    },
    doc = """A folder with the wheel under the name that package indexes take ("manylinux_2_35_x86_64"):
the oldest Linux whose libraries it needs, which only its finished files tell.""",
)
