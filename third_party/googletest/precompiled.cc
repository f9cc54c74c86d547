// What tests include first (tools/bazel/cc.bzl): parsing it takes a third of the time that most take.
#include <gtest/gtest.h>
