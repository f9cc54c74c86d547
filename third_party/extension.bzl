"""The repositories of repositories.bzl as a module extension, for Bazel >= 7 (see MODULE.bazel)."""

load("//third_party:repositories.bzl", _declare = "repositories")

def _impl(_module_ctx):
    _declare()

repositories = module_extension(implementation = _impl)
