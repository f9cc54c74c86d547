"""The rule that finds sources without Bazel finds exactly those that the extension needs."""

from pathlib import Path

import pytest

from tools.gpu.extension import BuildError, IsaTable, _run, sources

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    names = (
        "cc/bindings/module.cc",
        "cc/base/status.cc",
        "cc/base/status_test.cc",
        "cc/capi/capi.cc",
        "cc/engine/testing/fake_runner.cc",
        "cc/examples/embed/main.cc",
        "cc/ops/conformance.h",
        "cc/ops/norm/cases.h",
        "cc/ops/norm/norm.cc",
        "cc/ops/norm/norm_avx512.cc",
        "cc/ops/norm/norm_avx512_bf16.cc",
        "cc/ops/norm/norm_asimd_dotprod.cc",
        "cc/ops/norm/norm_vxe.cc",
        "cc/ops/norm/norm_benchmark.cc",
        "cc/ops/norm/cases.cc",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "cc/ops/norm/cases.h").write_text('#include "cc/ops/conformance.h"\n')
    (tmp_path / "cc/ops/norm/cases.cc").write_text('#include "cc/ops/norm/cases.h"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("machine", "kernels"),
    [
        ("x86_64", {"norm_avx512", "norm_avx512_bf16"}),
        ("aarch64", {"norm_asimd_dotprod"}),
        ("s390x", {"norm_vxe"}),
    ],
)
def test_sources(tree: Path, machine: str, kernels: set[str]):
    found = {path.stem for path in sources(tree, IsaTable.read(ROOT), machine)}
    assert found == {"module", "status", "norm"} | kernels


def test_flags_come_from_the_table_of_the_build():
    isas = IsaTable.read(ROOT)
    assert isas.of_file(Path("linear_avx512_bf16.cc")) == "avx512_bf16"
    assert "-mavx512bf16" in isas.flags["avx512_bf16"]
    assert isas.of_file(Path("linear.cc")) == "portable" and isas.flags["portable"] == []
    assert "-O3" in isas.kernel_flags


def test_a_failing_compiler_says_why(tmp_path: Path):
    (tmp_path / "x.cc").write_text("int main() { return nonsense; }")
    with pytest.raises(BuildError, match="nonsense"):
        _run(["g++", str(tmp_path / "x.cc"), "-o", str(tmp_path / "x")])
