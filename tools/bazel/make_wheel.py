"""Packs a wheel; the rule `wheel` in package.bzl calls it. Only the standard library is used."""

import argparse
import base64
import hashlib
import itertools
import pathlib
import sys
import zipfile
from collections.abc import Iterable

# The oldest time that a zip file can state: the bytes do not depend on the time of packing.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_TESTS = ("_test.py",)


class _Wheel:
    """A zip file that records the entries of RECORD."""

    def __init__(self, path: str) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record: list[str] = []

    def add(self, name: str, data: bytes, *, executable: bool = False) -> None:
        info = zipfile.ZipInfo(name, _EPOCH)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        self._zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, record_name: str) -> None:
        lines = [*self._record, f"{record_name},,"]
        self._zip.writestr(zipfile.ZipInfo(record_name, _EPOCH), "\n".join(lines) + "\n")
        self._zip.close()


def _requirements(path: str) -> list[str]:
    lines = pathlib.Path(path).read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _python_versions(tag: str) -> str:
    """Returns the versions that load an extension built for `tag`, "cp311-cp311-linux_x86_64"; for
    "py3-none-linux_x86_64", without an extension, all of Python 3."""
    python, abi, _ = tag.split("-")
    if python == "py3":
        return ">=3"
    version = f"3.{python.removeprefix('cp3')}"
    return f">={version}" if abi == "abi3" else f"=={version}.*"


def _license_of(notice: str) -> list[str]:
    """Returns the licences that the first line of a notice names."""
    key, _, names = pathlib.Path(notice).read_text().splitlines()[0].partition(": ")
    if key != "SPDX-License-Identifier":
        sys.exit(f"{notice} begins without SPDX-License-Identifier")
    return names.split(" AND ")


def _metadata(args: argparse.Namespace, license_files: Iterable[str]) -> str:
    notices = itertools.chain.from_iterable(map(_license_of, args.notice))
    licenses = dict.fromkeys(("Apache-2.0", *notices))
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {args.distribution}",
        f"Version: {args.version}",
        f"Summary: {args.summary}",
        f"License-Expression: {' AND '.join(licenses)}",
        *(f"License-File: {name}" for name in license_files),
        f"Requires-Python: {_python_versions(args.tag)}",
    ]
    lines += [f"Requires-Dist: {line}" for line in _requirements(args.requires)]
    for extra in args.extra:
        name, path = extra.split("=", 1)
        lines.append(f"Provides-Extra: {name}")
        lines += [f'Requires-Dist: {line}; extra == "{name}"' for line in _requirements(path)]
    return "\n".join(lines) + "\n"


def _wheel_file(tag: str) -> str:
    lines = ["Wheel-Version: 1.0", "Generator: pagemill", "Root-Is-Purelib: false", f"Tag: {tag}"]
    return "\n".join(lines) + "\n"


def _entry_points(args: argparse.Namespace) -> str:
    lines: dict[str, list[str]] = {}
    points = [f"console_scripts:{script}" for script in args.console_script]
    for point in (*points, *args.entry_point):
        group, line = point.split(":", 1)
        lines.setdefault(group, []).append(line.replace("=", " = "))
    return "".join(f"[{group}]\n" + "\n".join([*each, ""]) for group, each in lines.items())


def _packed_files(root: str, pairs: list[str]) -> list[tuple[str, pathlib.Path]]:
    """Returns (name in the wheel, file) of the files below `root` that are not tests, sorted."""
    files = {}
    for pair in pairs:
        name, path = pair.split("=", 1)
        if name.startswith(root) and not name.endswith(_TESTS):
            files[name.removeprefix(root)] = pathlib.Path(path)
    return sorted(files.items())


def main() -> None:
    parser = argparse.ArgumentParser(fromfile_prefix_chars="@")
    for flag in ("distribution", "version", "tag", "summary", "requires", "license", "root", "out"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--largest-mb", required=True, type=float, help="refuses a larger wheel")
    parser.add_argument("--console-script", action="append", default=[])
    parser.add_argument("--entry-point", action="append", default=[], help="GROUP:NAME=OBJECT")
    parser.add_argument("--extra", action="append", default=[], help="NAME=FILE")
    parser.add_argument("--notice", action="append", default=[], help="of third-party code")
    parser.add_argument("files", nargs="*", help="NAME=PATH")
    args = parser.parse_args()

    info = f"{args.distribution}-{args.version}.dist-info"
    wheel = _Wheel(args.out)
    for name, path in _packed_files(args.root, args.files):
        wheel.add(name, path.read_bytes(), executable=name.endswith(".so"))
    licenses = {pathlib.Path(path).name: path for path in (args.license, *args.notice)}
    wheel.add(f"{info}/METADATA", _metadata(args, licenses).encode())
    wheel.add(f"{info}/WHEEL", _wheel_file(args.tag).encode())
    wheel.add(f"{info}/entry_points.txt", _entry_points(args).encode())
    for name, path in licenses.items():
        wheel.add(f"{info}/licenses/{name}", pathlib.Path(path).read_bytes())
    wheel.close(f"{info}/RECORD")
    out = pathlib.Path(args.out)
    size = f"{out.name}: {out.stat().st_size / 1e6:.1f} MB"
    if out.stat().st_size > args.largest_mb * 1e6:
        sys.exit(f"{size}, more than its largest_mb = {args.largest_mb:g}")
    print(size)


if __name__ == "__main__":
    main()
