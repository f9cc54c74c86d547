"""The macro that makes the wheel of a device plugin."""

load("@py_server//:env.bzl", "WHEEL_TAG")
load("//:version.bzl", "VERSION")
load("//tools/bazel:package.bzl", "portable_wheel", "wheel")
load("//tools/bazel:python.bzl", "py_library")

# A wheel has all kernels for all architectures.
_TAGS = ["manual"]

def plugin_wheel(
        vendor,
        plugin,
        summary,
        largest_mb,
        target_compatible_with,
        notices = [],
        runtime = None,
        runtime_libraries = []):
    """`:wheel`, the package `pagemill_<vendor>`; `:release` names it for package indexes.

    Args:
      vendor: of `--device`; the BUILD file is in `<vendor>/wheel`, with `pagemill_<vendor>/__init__.py`.
      plugin: the shared object of releases.
      summary: of the package.
      largest_mb: of the package, in millions of bytes.
      target_compatible_with: where the plugin can be compiled.
      notices: of third-party code that the plugin has.
      runtime: the package that the plugin finds its vendor's runtime in, as pip takes it.
      runtime_libraries: of that package, with which the plugin is linked.
    """
    package = "pagemill_" + vendor
    native.genrule(
        name = "requires",
        outs = ["requires.in"],
        cmd = "printf '%s\\n' {} > $@".format(
            " ".join(["'{}'".format(each) for each in ["pagemill==" + VERSION] + ([runtime] if runtime else [])]),
        ),
    )
    native.genrule(
        name = "plugin",
        srcs = [plugin],
        outs = ["{0}/lib{0}.so".format(package)],
        cmd = "cp $< $@",
        tags = _TAGS,
        target_compatible_with = target_compatible_with,
    )
    py_library(
        name = package,
        srcs = [package + "/__init__.py"],
        data = [":plugin"],
        tags = _TAGS,
        target_compatible_with = target_compatible_with,
    )
    wheel(
        name = "wheel",
        distribution = package,
        entry_points = ["pagemill.devices:{}={}:PLUGIN".format(vendor, package)],
        largest_mb = largest_mb,
        notices = notices,
        requires = ":requires",
        root = vendor + "/wheel/",
        summary = summary,
        tag = "py3-none-" + WHEEL_TAG.split("-")[2],
        tags = _TAGS,
        target_compatible_with = target_compatible_with,
        version = VERSION,
        deps = [":" + package],
    )
    portable_wheel(
        name = "release",
        excludes = runtime_libraries,
        tags = _TAGS,
        target_compatible_with = target_compatible_with,
        wheel = ":wheel",
    )
