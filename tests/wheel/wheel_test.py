"""The finished wheel: its name, what is in it, and that it runs when pip has installed it."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest


@pytest.fixture(scope="module")
def wheel() -> pathlib.Path:
    (path,) = pathlib.Path(os.environ["PAGEMILL_TEST_WHEELS"]).glob("*.whl")
    return path


def test_its_name_says_on_which_linux_it_runs(wheel: pathlib.Path) -> None:
    """The version of glibc is that of the machine that compiled it, or older."""
    assert re.search(r"-manylinux_2_\d+_\w+\.whl$", wheel.name), wheel.name


def test_it_has_the_extension_and_no_libraries_of_others(wheel: pathlib.Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "pagemill/_native/_core.so" in names
    assert [name for name in names if ".so" in name] == ["pagemill/_native/_core.so"]
    assert not [name for name in names if name.endswith("_test.py")]
    # Type checkers of users read its annotations.
    assert {"pagemill/py.typed", "pagemill/_native/_core.pyi"} <= set(names)


def test_it_has_the_licences_of_what_is_compiled_into_it(wheel: pathlib.Path) -> None:
    files = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    text = files.read(metadata).decode()
    assert "\nLicense-Expression: Apache-2.0 AND MIT AND BSD-3-Clause AND BSD-2-Clause\n" in text
    for library in ("nanobind", "robin_map", "xgrammar", "xxhash"):
        name = metadata.replace("METADATA", f"licenses/{library}.txt")
        assert "Copyright" in files.read(name).decode()


def test_it_runs_when_installed(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Its requirements are those of the test's environment."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path), str(wheel)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    where = "import pagemill._native as n; print(n._core.__file__)"
    found = subprocess.run(
        [sys.executable, "-P", "-c", where],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(tmp_path))
    doctor = subprocess.run(
        [sys.executable, "-P", "-m", "pagemill.cli", "doctor"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
