"""Checks which layer of cc/ uses which, from #include lines and BUILD files.

The table is USERS in cc/BUILD.bazel, which also makes the visibility groups. Bazel already rejects
a dependency that visibility forbids; this also checks headers of targets that are visible to
everyone, and system headers, which Bazel does not know.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from tests.source_tree import ROOT, SourceFile

_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)

# The header of engine that the compute column implements: a layer of its own in the table.
RUNNER_INTERFACE = {
    "cc/engine/runner.h",
    "cc/engine/runner_control.h",
    "//cc/engine:runner",
}

# May use every layer; see EMBEDDERS in cc/BUILD.bazel.
_EMBEDDERS = {"bindings", "capi", "examples", "sdk"}

_FOREIGN = re.compile(
    r"^(Python\.h|nanobind/|pybind11/|torch/|ATen/|c10/|cuda|cublas|nccl|hip/|rccl|sycl/|CL/|"
    r"oneapi/|level_zero/|xgrammar/|(cuda|hip|sycl|python)/)"
)
# A folder that wraps a library that the rest of cc/ does not use, and the library's headers.
_WRAPPERS = {"cc/grammar/": "xgrammar/", "cc/ops/linear/onednn/": "oneapi/dnnl/"}
# The scheduler and the cache are deterministic functions of their calls.
_PURE_LAYERS = {"kv_cache", "scheduler"}
_IMPURE = re.compile(
    r"^(chrono|ctime|time\.h|random|thread|mutex|fstream|filesystem|sys/.*|cc/base/clock\.h)$"
)
_VENDOR_CONDITION = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*(CUDA|__HIP|ROCM|SYCL)", re.MULTILINE
)


def read_users() -> dict[str, set[str]]:
    """Returns layer -> layers that may use it, from cc/BUILD.bazel."""
    tree = ast.parse((ROOT / "cc/BUILD.bazel").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "USERS":
            return {layer: set(users) for layer, users in ast.literal_eval(node.value).items()}
    raise AssertionError("cc/BUILD.bazel has no USERS table")


def _may_use(user: str, path: str, users: dict[str, set[str]]) -> bool:
    used = re.split("[/:]", path.removeprefix("//"))[1]
    if user == used or user in _EMBEDDERS:
        return True
    if path in RUNNER_INTERFACE and user in users["runner_interface"]:
        return True
    return used in users and user in users[used]


def _uses(file: SourceFile) -> Iterator[str]:
    """Yields headers that the file includes, or the labels that a BUILD file depends on."""
    if not file.path.endswith("BUILD.bazel"):
        yield from _INCLUDE.findall(file.text)
        return
    for call in ast.walk(ast.parse(file.text)):
        if not isinstance(call, ast.Call):
            continue
        for keyword in call.keywords:
            if keyword.arg not in {"visibility", "default_visibility", "packages"}:
                for node in ast.walk(keyword.value):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield node.value


def _is_foreign(path: str, used: str) -> bool:
    own = any(
        path.startswith(folder) and used.startswith(headers)
        for folder, headers in _WRAPPERS.items()
    )
    return _FOREIGN.match(used) is not None and not own


def offences(files: Iterable[SourceFile], users: dict[str, set[str]]) -> list[str]:
    """Returns one line per use that breaks a rule; the files are C++ and BUILD files of cc/."""
    found: set[str] = set()
    for file in files:
        layer = file.parts[1]
        is_test = re.search(r"_(test|benchmark|conformance)\.|/testing/", file.path) is not None
        for used in _uses(file):
            if re.match(r"(//)?cc/\w+", used) and not _may_use(layer, used, users):
                found.add(f"{file.path}: {layer} may not use {used}")
            if layer != "bindings" and _is_foreign(file.path, used):
                found.add(f"{file.path}: cc/ may not use {used}")
            if layer in _PURE_LAYERS and not is_test and _IMPURE.match(used):
                found.add(f"{file.path}: {layer} has no clock, randomness, thread or file: {used}")
        for macro in _VENDOR_CONDITION.findall(file.text):
            found.add(f"{file.path}: a vendor's #if belongs in the vendor's tree: {macro}")
    return sorted(found)
