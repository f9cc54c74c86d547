"""Packs an SDK archive; the rule `sdk` in sdk.bzl calls it. Only the standard library is used.

Arguments: MANIFEST OUT. The manifest is JSON:

    version   of every pkg-config file
    files     place in the archive -> path: licence, examples
    parts     package, summary   of lib/pkgconfig/<package>.pc
              lib                path of the library, which becomes lib/<its name>
              link               flags of `Libs`
              include            folder of the headers in the archive, what `-I` names
              roots              headers that hosts include
              headers            path from the root -> path: those, and all that they may include
              strip              cut off a header's path from the root

Packs only the headers that the roots include, directly or indirectly.
"""

import gzip
import io
import json
import pathlib
import re
import sys
import tarfile
from typing import Any

_PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/{include}

Name: {package}
Description: {summary}
Version: {version}
Libs: -L${{libdir}} {link}
Cflags: -I${{includedir}}
"""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def reached(roots: list[str], headers: dict[str, str]) -> dict[str, bytes]:
    """Returns the headers that `roots` include, directly or not: path from the root -> content.

    Raises:
        SystemExit: a header includes a file that is not in `headers`.
    """
    found: dict[str, bytes] = {}
    left = list(roots)
    while left:
        name = left.pop()
        if name in found:
            continue
        if name not in headers:
            raise SystemExit(f"make_sdk: {name} is included, but no library of the part has it")
        found[name] = pathlib.Path(headers[name]).read_bytes()
        left += [include.decode() for include in _INCLUDE.findall(found[name])]
    return found


def contents(manifest: dict[str, Any]) -> dict[str, tuple[bytes, int]]:
    """Returns place in the archive -> (bytes, mode)."""
    entries = {
        place: (pathlib.Path(path).read_bytes(), 0o644) for place, path in manifest["files"].items()
    }
    for part in manifest["parts"]:
        for name, data in reached(part["roots"], part["headers"]).items():
            entries[f"{part['include']}/{name.removeprefix(part['strip'])}"] = (data, 0o644)
        pkg_config = _PKG_CONFIG.format(
            include=part["include"],
            link=" ".join(part["link"]),
            package=part["package"],
            summary=part["summary"],
            version=manifest["version"],
        )
        entries[f"lib/pkgconfig/{part['package']}.pc"] = (pkg_config.encode(), 0o644)
        lib = pathlib.Path(part["lib"])
        mode = 0o755 if lib.suffix == ".so" else 0o644
        entries[f"lib/{lib.name}"] = (lib.read_bytes(), mode)
    return entries


def main() -> None:
    manifest_path, out_path = sys.argv[1:]
    entries = contents(json.loads(pathlib.Path(manifest_path).read_text()))
    with (
        open(out_path, "wb") as out,
        gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for place, (data, mode) in sorted(entries.items()):
            entry = tarfile.TarInfo(place)  # owner, group and time stay 0
            entry.size = len(data)
            entry.mode = mode
            archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
