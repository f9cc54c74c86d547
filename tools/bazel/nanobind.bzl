"""Macros for the compiled extension."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load("//:version.bzl", "VERSION")

_NANOBIND = "@py_server//:nanobind"

# nanobind's types stay private to the extension, so that two extensions do not mix them up.
_COPTS = ["-fvisibility=hidden"]

def nanobind_library(name, srcs, copts = [], deps = [], **kwargs):
    """A cc_library of bindings: nanobind's headers and flags, and PAGEMILL_VERSION, are added.

    Args:
      name: of the library.
      srcs: sources.
      copts: added to nanobind's.
      deps: of the library.
      **kwargs: other attributes of cc_library.
    """
    cc_library(
        name = name,
        srcs = srcs,
        copts = _COPTS + copts,
        local_defines = ["PAGEMILL_VERSION=\\\"{}\\\"".format(VERSION)],
        deps = deps + [_NANOBIND],
        **kwargs
    )

def nanobind_extension(name, deps, linkopts = [], **kwargs):
    """`<name>.so`, an extension module for the interpreter of the locked environments.

    Args:
      name: of the module, as in NB_MODULE(name, m).
      deps: nanobind_library targets; the one with NB_MODULE has alwayslink = True.
      linkopts: added to the linker flags.
      **kwargs: other attributes of cc_binary.
    """
    cc_binary(
        name = name + ".so",
        linkopts = ["-Wl,--exclude-libs,ALL"] + linkopts,
        linkshared = True,
        linkstatic = True,
        deps = deps,
        **kwargs
    )
