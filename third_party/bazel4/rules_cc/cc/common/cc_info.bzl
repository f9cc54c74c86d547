"""`CcInfo` under the label of the rules_cc module."""

load(":native.bzl", "builtin_cc_info")

CcInfo = builtin_cc_info
