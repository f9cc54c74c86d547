"""Packs an SDK archive; the rule `sdk` in sdk.bzl calls it. Only the standard library is used.

Arguments: MANIFEST OUT. The manifest is JSON:

    version   of the packages
    files     place in the archive -> path: licence, pages, examples
    parts     package, summary   of lib/pkgconfig/<package>.pc
              target             CMake's Pagemill::<target>, in lib/cmake/Pagemill
              lib                path of the library, which becomes lib/<its name>
              link               flags that hosts link with besides
              roots              headers that hosts include, below include/
              headers            path below include/ -> path: those, and all that they may include

Packs only the headers that the roots include, directly or indirectly. All places are relative to
one another, so that an unpacked archive can be moved.
"""

import gzip
import io
import json
import pathlib
import posixpath
import re
import sys
import tarfile
from typing import Any

_PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: {package}
Description: {summary}
Version: {version}
Libs: -L${{libdir}} {link}
Cflags: -I${{includedir}}
"""

_CMAKE_CONFIG = """\
# find_package(Pagemill): the targets {targets}.
get_filename_component(_pagemill "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
{blocks}
unset(_pagemill)
"""

_CMAKE_TARGET = """
# {summary}
if(NOT TARGET Pagemill::{target})
  add_library(Pagemill::{target} {kind} IMPORTED)
  set_target_properties(Pagemill::{target} PROPERTIES
    IMPORTED_LOCATION "${{_pagemill}}/lib/{lib}"
    INTERFACE_INCLUDE_DIRECTORIES "${{_pagemill}}/include"
{properties})
endif()
"""

# A minor version may change the C++ interface as long as the major version is 0.
_CMAKE_VERSION = """\
set(PACKAGE_VERSION {version})
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
   AND "${{PACKAGE_FIND_VERSION_MAJOR}}.${{PACKAGE_FIND_VERSION_MINOR}}" STREQUAL "{minor}")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
"""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def reached(roots: list[str], headers: dict[str, str]) -> dict[str, bytes]:
    """Returns the headers that `roots` include, directly or not: path below include/ -> content.

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


def _is_shared(part: dict[str, Any]) -> bool:
    return part["lib"].endswith(".so")


def pkg_config(part: dict[str, Any], version: str) -> str:
    """Returns the text of the part's pkg-config file."""
    name = pathlib.Path(part["lib"]).stem.removeprefix("lib")
    rpath = ["-Wl,-rpath,${libdir}"] if _is_shared(part) else []
    link = " ".join([*rpath, f"-l{name}", *part["link"]])
    return _PKG_CONFIG.format(
        link=link, package=part["package"], summary=part["summary"], version=version
    )


def _cmake_target(part: dict[str, Any]) -> str:
    lib = pathlib.Path(part["lib"]).name
    if _is_shared(part):
        properties = {"IMPORTED_SONAME": lib}
    else:
        properties = {
            "IMPORTED_LINK_INTERFACE_LANGUAGES": "CXX",
            "INTERFACE_COMPILE_FEATURES": "cxx_std_20",
            "INTERFACE_LINK_LIBRARIES": ";".join(part["link"]),
        }
    return _CMAKE_TARGET.format(
        kind="SHARED" if _is_shared(part) else "STATIC",
        lib=lib,
        properties="\n".join(f'    {key} "{value}"' for key, value in properties.items()),
        summary=part["summary"],
        target=part["target"],
    )


def cmake(parts: list[dict[str, Any]], version: str) -> dict[str, str]:
    """Returns the files of CMake's package: name -> text."""
    return {
        "PagemillConfig.cmake": _CMAKE_CONFIG.format(
            blocks="".join(map(_cmake_target, parts)),
            targets=", ".join(f"Pagemill::{part['target']}" for part in parts),
        ),
        "PagemillConfigVersion.cmake": _CMAKE_VERSION.format(
            minor=version.rpartition(".")[0], version=version
        ),
    }


# Where the archive has what the tree has in cc/.
_MOVED = {"cc/examples/": "examples/", "cc/": "include/pagemill/"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")


def relinked(text: str, path: str, place: str, places: set[str]) -> str:
    """Returns a page of the tree with links that are right in the archive.

    A link to what the archive lacks becomes plain text.
    """

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        for old, new in _MOVED.items():
            if target.startswith(old):
                target = new + target.removeprefix(old)
                break
        if target not in places:
            return match[1]
        relative = posixpath.relpath(target, posixpath.dirname(place) or ".")
        return f"[{match[1]}]({relative}{match[3] or ''})"

    return _LINK.sub(link, text)


def contents(manifest: dict[str, Any]) -> dict[str, tuple[bytes, int]]:
    """Returns place in the archive -> (bytes, mode)."""
    entries = {
        place: (pathlib.Path(path).read_bytes(), 0o644) for place, path in manifest["files"].items()
    }
    for name, text in cmake(manifest["parts"], manifest["version"]).items():
        entries[f"lib/cmake/Pagemill/{name}"] = (text.encode(), 0o644)
    for part in manifest["parts"]:
        for name, data in reached(part["roots"], part["headers"]).items():
            entries[f"include/{name}"] = (data, 0o644)
        text = pkg_config(part, manifest["version"])
        entries[f"lib/pkgconfig/{part['package']}.pc"] = (text.encode(), 0o644)
        lib = pathlib.Path(part["lib"])
        entries[f"lib/{lib.name}"] = (lib.read_bytes(), 0o755 if _is_shared(part) else 0o644)
    for place, path in manifest["files"].items():
        if place.endswith(".md"):
            text = relinked(entries[place][0].decode(), path, place, set(entries))
            entries[place] = (text.encode(), 0o644)
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
