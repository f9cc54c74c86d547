"""`cc_common` under the label of the rules_cc module."""

load(":native.bzl", "builtin_cc_common")

cc_common = builtin_cc_common
