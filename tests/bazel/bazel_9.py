"""Names that Bazel 9 has built in. Those of languages (cc_library, CcInfo, ...) are in modules."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions and constants of the language, in every file.
_STARLARK = _names("""
    False None True abs all any bool bytes dict dir enumerate fail float getattr hasattr hash int
    len list max min print range repr reversed set sorted str tuple type zip
""")

BZL_FILE = _STARLARK | _names("""
    AnalysisTestResultInfo DefaultInfo InstrumentedFilesInfo Label OutputGroupInfo
    PackageSpecificationInfo RunEnvironmentInfo analysis_test_transition aspect attr config
    config_common configuration_field coverage_common depset exec_group exec_transition json macro
    module_extension native platform_common proto provider repository_rule rule select struct
    subrule tag_class testing transition visibility
""")

# Rules and functions; a .bzl file reaches them as attributes of `native`.
_PACKAGE = _names("""
    alias config_setting constraint_setting constraint_value existing_rule existing_rules
    exports_files filegroup genquery genrule glob label_flag label_setting module_name
    module_version package_default_visibility package_group package_name package_relative_label
    platform repo_name starlark_doc_extract subpackages test_suite toolchain toolchain_type
""")

NATIVE = frozenset(f"native.{name}" for name in _PACKAGE)
BUILD_FILE = _STARLARK | _PACKAGE | {"depset", "licenses", "package", "select"}
