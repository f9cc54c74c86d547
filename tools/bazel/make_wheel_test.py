"""The wheel has everything that pip needs, contains no tests, and is reproducible."""

import subprocess
import sys
import zipfile

import pytest

_TOOL = "tools/bazel/make_wheel.py"
_PYTHON = f"cp3{sys.version_info.minor}"
_TAG = f"{_PYTHON}-{_PYTHON}-linux_x86_64"


def _pack(folder, name, tag=_TAG, largest_mb="1"):
    for path, text in {"a.py": "a = 1", "a_test.py": "", "_core.so": "ELF"}.items():
        (folder / path).write_text(text)
    (folder / "requires").write_text("# why\nnumpy\npip>=24.1\n")
    (folder / "fast").write_text("# more\nuvloop\n")
    (folder / "LICENSE").write_text("Apache License\n")
    (folder / "b.txt").write_text("SPDX-License-Identifier: MIT AND Apache-2.0\n\nb\n")
    (folder / "c.txt").write_text("SPDX-License-Identifier: MIT\n\nc\n")
    out = folder / name
    pairs = [f"python/toy/{path}={folder / path}" for path in ("a.py", "a_test.py", "_core.so")]
    options = {
        "distribution": "toy",
        "version": "1.0",
        "tag": tag,
        "summary": "A toy",
        "requires": folder / "requires",
        "license": folder / "LICENSE",
        "root": "python/",
        "out": out,
        "largest-mb": largest_mb,
        "console-script": "toy=toy.a:main",
        "entry-point": "toys:a=toy.a:TOY",
        "extra": f"fast={folder / 'fast'}",
    }
    flags = [f"--{key}={value}" for key, value in options.items()]
    flags += [f"--notice={folder / name}" for name in ("b.txt", "c.txt")]
    command = [sys.executable, _TOOL, *flags, *pairs, "elsewhere/b.py=b"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return out


def test_contents(tmp_path):
    wheel = zipfile.ZipFile(_pack(tmp_path, f"toy-1.0-{_TAG}.whl"))
    info = "toy-1.0.dist-info"
    assert [name for name in wheel.namelist() if info not in name] == ["toy/_core.so", "toy/a.py"]
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "Requires-Dist: numpy\nRequires-Dist: pip>=24.1\n" in metadata
    assert 'Provides-Extra: fast\nRequires-Dist: uvloop; extra == "fast"\n' in metadata
    assert "Root-Is-Purelib: false" in wheel.read(f"{info}/WHEEL").decode()
    points = wheel.read(f"{info}/entry_points.txt").decode()
    assert points == "[console_scripts]\ntoy = toy.a:main\n[toys]\na = toy.a:TOY\n"
    assert len(wheel.read(f"{info}/RECORD").decode().splitlines()) == len(wheel.namelist())


def test_has_the_licences_of_third_party_code(tmp_path):
    wheel = zipfile.ZipFile(_pack(tmp_path, f"toy-1.0-{_TAG}.whl"))
    metadata = wheel.read("toy-1.0.dist-info/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0 AND MIT\n" in metadata
    assert "\nLicense-File: LICENSE\nLicense-File: b.txt\nLicense-File: c.txt\n" in metadata
    assert wheel.read("toy-1.0.dist-info/licenses/LICENSE") == b"Apache License\n"
    assert wheel.read("toy-1.0.dist-info/licenses/c.txt").endswith(b"c\n")


def test_refuses_to_be_larger_than_it_should_be(tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as error:
        _pack(tmp_path, "toy.whl", largest_mb="0.0001")
    assert error.value.stderr == "toy.whl: 0.0 MB, more than its largest_mb = 0.0001\n"


@pytest.mark.parametrize(
    ("tag", "versions"),
    [
        ("cp311-cp311-linux_x86_64", "==3.11.*"),
        ("cp311-abi3-linux_x86_64", ">=3.11"),
        ("py3-none-linux_x86_64", ">=3"),
    ],
)
def test_states_the_versions_of_python_that_load_it(tmp_path, tag, versions):
    metadata = zipfile.ZipFile(_pack(tmp_path, "toy.whl", tag)).read("toy-1.0.dist-info/METADATA")
    assert f"\nRequires-Python: {versions}\n" in metadata.decode()


def test_reproducible(tmp_path):
    assert _pack(tmp_path, "one.whl").read_bytes() == _pack(tmp_path, "two.whl").read_bytes()


def test_pip_installs_it(tmp_path):
    wheel = _pack(tmp_path, f"toy-1.0-{_TAG}.whl")
    renamed = wheel.rename(tmp_path / "toy-1.0-py3-none-any.whl")  # any interpreter will do here
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(renamed)], check=True)
    assert (target / "toy" / "_core.so").exists()
    assert (target / "bin" / "toy").exists()
