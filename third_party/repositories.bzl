"""External repositories that both Bazel versions have: tools, environments, data."""

load("//third_party:datasets.bzl", "datasets")
load("//third_party:models.bzl", "models")
load("//third_party/buildifier:buildifier.bzl", "buildifier_binary")
load("//third_party/cuda:disassembler.bzl", "cuda_disassembler")
load("//third_party/flashinfer:flashinfer.bzl", "flashinfer_headers")
load("//third_party/hip:hip.bzl", "hip_sdk")
load("//third_party/node:node_packages.bzl", "node_packages")
load("//third_party/onednn:onednn.bzl", "onednn_library")
load("//third_party/sycl:sycl.bzl", "sycl_runtime")
load("//third_party/torch:torch.bzl", "torch_library")
load("//third_party/triton:triton.bzl", "triton_package")
load("//third_party/xgrammar:xgrammar.bzl", "xgrammar_source")
load("//tools/bazel:local_tools.bzl", "local_tools")
load("//tools/bazel:python_env.bzl", "python_env")

def repositories():
    """Declares what the C++ libraries need, in the workspaces of hosts too. Nothing is fetched."""
    local_tools(name = "local_tools")

def dev_repositories():
    """Declares what tests, the server and packages need. Each is fetched with its first use."""
    buildifier_binary(name = "buildifier")
    node_packages(
        name = "node_clients",
        lock = "//third_party/node:package-lock.json",
        manifest = "//third_party/node:package.json",
    )
    python_env(
        name = "py_clients",
        lock = "//third_party/python:clients.lock",
        require_hashes = True,
    )
    python_env(
        name = "py_release",
        lock = "//third_party/python:release.lock",
        require_hashes = True,
    )
    python_env(
        name = "py_server",
        lock = "//third_party/python:server.lock",
        require_hashes = True,
    )
    python_env(
        name = "py_test",
        lock = "//third_party/python:test.lock",
    )
    cuda_disassembler(name = "cuda_disassembler")
    datasets()
    flashinfer_headers(name = "flashinfer")
    hip_sdk(name = "hip_sdk")
    models()
    onednn_library(name = "onednn")
    sycl_runtime(name = "sycl_runtime")
    torch_library(name = "torch")
    triton_package(name = "triton")
    xgrammar_source(name = "xgrammar")
