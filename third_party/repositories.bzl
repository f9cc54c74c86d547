"""External repositories that both Bazel versions have: Python environments, models, local tools."""

load("//third_party:models.bzl", "models")
load("//third_party/buildifier:buildifier.bzl", "buildifier_binary")
load("//third_party/onednn:onednn.bzl", "onednn_library")
load("//tools/bazel:local_tools.bzl", "local_tools")
load("//tools/bazel:python_env.bzl", "python_env")

def repositories():
    """Declares them. What no target asks for is not fetched."""
    buildifier_binary(name = "buildifier")
    local_tools(name = "local_tools")
    python_env(
        name = "py_server",
        lock = "//third_party/python:server.lock",
        require_hashes = True,
    )
    python_env(
        name = "py_test",
        lock = "//third_party/python:test.lock",
    )
    models()
    onednn_library(name = "onednn")
