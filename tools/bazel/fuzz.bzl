"""Macro: the test that runs the corpus of a libFuzzer target. tools/fuzz/build makes the fuzzer."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//tools/bazel:cc.bzl", "portable_cc_test")

def fuzz_target(name, srcs, corpus, deps = [], size = "small", cpus = ["aarch64", "s390x"]):
    """`<name>_corpus_test` runs a corpus through LLVMFuzzerTestOneInput(), with any compiler.

    Args:
      name: of the target; tools/fuzz/build knows it by the path of <name>.cc.
      srcs: define LLVMFuzzerTestOneInput().
      corpus: file of tools/fuzz/corpus.py.
      deps: of `srcs`.
      size: of the test.
      cpus: on which the corpus runs emulated.
    """
    cc_library(
        name = name + "_entry",
        testonly = True,
        srcs = srcs,
        alwayslink = True,
        deps = deps + ["//tools/fuzz:byte_reader"],
    )
    portable_cc_test(
        name = name + "_corpus_test",
        size = size,
        srcs = ["//tools/fuzz:corpus_test.cc"],
        cpus = cpus,
        data = [corpus],
        env = {"PAGEMILL_TEST_CORPUS": native.package_name() + "/" + corpus},
        deps = [name + "_entry"],
    )
