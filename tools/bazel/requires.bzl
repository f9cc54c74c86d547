"""Skipping targets where an optional tool is missing."""

load("@local_tools//:defs.bzl", "TOOLS")

def has_tools(*tools):
    """Whether this machine has every one of the named tools."""
    for tool in tools:
        if not TOOLS[tool]:
            return False
    return True

def requires(*tools):
    """A value for `target_compatible_with`: //... reports the target as skipped without the tools."""
    return [] if has_tools(*tools) else [Label("//tools/bazel:unavailable")]
