"""The baseline check, with machines made up."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from pagemill._native import cpu_check

S390X = """vendor_id       : IBM/S390
features\t: esan3 zarch stfle msa vx vxd vxe vxe2
processor 0: version = FF
"""
X86 = "processor : 0\nflags\t\t: fpu sse2 avx2\n"


def features(tmp_path: Path, text: str) -> frozenset[str]:
    path = tmp_path / "cpuinfo"
    path.write_text(text, encoding="utf-8")
    return cpu_check.read_features(path)


def test_reads_features_of_each_spelling(tmp_path: Path) -> None:
    assert features(tmp_path, X86) == {"fpu", "sse2", "avx2"}
    assert "vxe" in features(tmp_path, S390X)
    assert features(tmp_path, "nothing here\n") == frozenset()
    assert cpu_check.read_features(tmp_path / "missing") == frozenset()


def test_baselines(tmp_path: Path) -> None:
    assert cpu_check.missing_features("x86_64", frozenset()) == []
    assert cpu_check.missing_features("aarch64", frozenset()) == []
    assert cpu_check.missing_features("s390x", features(tmp_path, S390X)) == []
    assert cpu_check.missing_features("s390x", frozenset({"vx"})) == ["vxe"]
    with pytest.raises(ImportError, match="this machine is mips"):
        cpu_check.missing_features("mips", frozenset())


def test_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_check.require_baseline()
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    monkeypatch.setattr(cpu_check, "read_features", lambda: frozenset({"vx"}))
    with pytest.raises(ImportError, match="needs the CPU features vxe"):
        cpu_check.require_baseline()
