"""CMake finds the SDK in any folder, builds its examples, and refuses a wrong version."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.embed.sdk_archive import SDK, output, unpack

CMAKE = os.environ.get("PAGEMILL_TEST_CMAKE", "")

pytestmark = pytest.mark.skipif(
    not SDK or not CMAKE, reason="PAGEMILL_TEST_SDK or _CMAKE is not set"
)


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("the sdk"))  # a space in the path


def test_examples_build_and_run(sdk: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    output(CMAKE, "-S", sdk / "examples", "-B", build, f"-DCMAKE_PREFIX_PATH={sdk}")
    targets = ["embed_c", "embed_engine", "embed_scheduler"]
    output(CMAKE, "--build", build, "--target", *targets)
    assert "12 requests" in output(build / "embed_scheduler")
    # They start, with the shared library found, and say what is missing.
    for program, arguments, message in [
        ("embed_c", ["none.program", "8", "1"], "cannot read the program"),
        ("embed_engine", [str(tmp_path), "Hi"], "model.vocabulary"),
    ]:
        done = subprocess.run(
            [build / program, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and message in done.stderr


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("", True),
        ("{major}.{minor}", True),
        ("{major}.{minor}.{patch}", True),
        ("{major}.{minor}.{patch} EXACT", True),
        ("{major}.{next_minor}", False),
        ("{next_major}.0", False),
        ("{major}.{minor}.{next_patch}", False),
        ("{major}.{minor}.{next_patch} EXACT", False),
    ],
)
def test_version(sdk: Path, tmp_path: Path, wanted: str, fits: bool) -> None:
    (text,) = re.findall(r"^Version: (.*)$", (sdk / "lib/pkgconfig/pagemill.pc").read_text(), re.M)
    version = dict(zip(["major", "minor", "patch"], map(int, text.split(".")), strict=True))
    version |= {f"next_{part}": number + 1 for part, number in version.items()}
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(host LANGUAGES NONE)\n"
        f"find_package(Pagemill {wanted.format(**version)} REQUIRED)\n"
    )
    command = [CMAKE, "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={sdk}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == fits, done.stderr


def test_packages_name_no_absolute_path(sdk: Path) -> None:
    files = [*sdk.glob("lib/cmake/**/*.cmake"), *sdk.glob("lib/pkgconfig/*.pc")]
    assert len(files) == 5
    for path in files:
        assert '"/' not in path.read_text() and "=/" not in path.read_text()
