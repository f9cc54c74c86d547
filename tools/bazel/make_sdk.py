"""Packs an SDK archive; the rule `sdk` in package.bzl calls it. Only the standard library is used.

In it: lib/*.so, lib/pkgconfig/<package>.pc, include/**/*.h and LICENSE.
"""

import argparse
import gzip
import io
import pathlib
import tarfile

_PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: {package}
Description: {summary}
Version: {version}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} {libs}
Cflags: -I${{includedir}}
"""


def _link_flag(lib: pathlib.Path) -> str:
    return "-l" + lib.name.split(".")[0].removeprefix("lib")


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)  # owner, group and time stay 0
    entry.size = len(data)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(data))


def main() -> None:
    parser = argparse.ArgumentParser(fromfile_prefix_chars="@")
    for flag in ("package", "version", "summary", "license", "header-root", "out"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--lib", action="append", default=[], type=pathlib.Path)
    parser.add_argument("headers", nargs="*", help="NAME=PATH")
    args = parser.parse_args()

    libs = sorted(args.lib, key=lambda lib: lib.name)
    headers = sorted(pair.split("=", 1) for pair in args.headers)
    flags = " ".join(_link_flag(lib) for lib in libs if lib.name.endswith((".so", ".a")))
    pkg_config = _PKG_CONFIG.format(
        libs=flags, package=args.package, summary=args.summary, version=args.version
    )
    with (
        open(args.out, "wb") as out,
        gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        _add(archive, "LICENSE", pathlib.Path(args.license).read_bytes())
        for name, path in headers:
            place = name.removeprefix(args.header_root)
            _add(archive, f"include/{place}", pathlib.Path(path).read_bytes())
        _add(archive, f"lib/pkgconfig/{args.package}.pc", pkg_config.encode())
        for lib in libs:
            _add(archive, f"lib/{lib.name}", lib.read_bytes(), mode=0o755)


if __name__ == "__main__":
    main()
