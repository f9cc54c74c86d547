"""The Java rules that Bazel 4's own toolchain definitions load. Nothing here is Java."""

java_import = native.java_import
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
