"""Built-in names under an alias: a .bzl file cannot re-export a built-in under its own name."""

builtin_cc_common = cc_common
builtin_cc_info = CcInfo
