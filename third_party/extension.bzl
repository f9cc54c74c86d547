"""The repositories of repositories.bzl as module extensions, for Bazel >= 7 (see MODULE.bazel)."""

load("//third_party:repositories.bzl", _declare = "repositories", _declare_dev = "dev_repositories")

def _impl(_module_ctx):
    _declare()

def _dev_impl(_module_ctx):
    _declare_dev()

repositories = module_extension(implementation = _impl)
dev_repositories = module_extension(implementation = _dev_impl)
