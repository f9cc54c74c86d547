"""Says what the C ABI is, one fact a line: layouts, enumerators, functions, callbacks, version.

    ./bazelw build //cc/capi:pagemill.h
    cd cc/capi/abi
    python3.11 description.py ../../../bazel-bin/cc/capi/pagemill.h > pagemill_abi_1.txt

writes the file that abi_test.py compares with. Layouts come from a C program that the
compiler makes of the header; sizes are those of 64-bit machines.
"""

import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

HEADER = pathlib.Path("cc/capi/pagemill.h")

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.DOTALL)
_ENUM = re.compile(r"typedef enum (\w+) \{(.*?)\} \1;", re.DOTALL)
_CALLBACK = re.compile(r"^typedef ([^;{]*\(\*\w+\)\([^;]*\));", re.MULTILINE)
_FUNCTION = re.compile(r"^PAGEMILL_API\s+([^;]+);", re.MULTILINE)


def _words(text: str) -> str:
    return " ".join(text.split())


def fields(header: str) -> Iterator[tuple[str, str, str]]:
    """Yields (struct, field, type) in the header's order."""
    for struct, body in _STRUCT.findall(_COMMENT.sub("", header)):
        for declaration in filter(None, map(_words, body.split(";"))):
            kind, field = re.fullmatch(r"(.*[ *])(\w+)", declaration).groups()
            yield struct, field, kind.strip()


def functions(header: str) -> list[str]:
    """Returns the declarations, each as one line."""
    bare = _COMMENT.sub("", header)
    return sorted(_words(text) for text in _FUNCTION.findall(bare))


def callbacks(header: str) -> list[str]:
    """Returns the types of functions that hosts pass, each as one line."""
    bare = _COMMENT.sub("", header)
    return sorted("typedef " + _words(text) for text in _CALLBACK.findall(bare))


def function_names(header: str) -> set[str]:
    """Returns the names of the functions that the header declares."""
    return {re.search(r"(\w+)\(", text).group(1) for text in functions(header)}


def _probe(path: pathlib.Path, header: str) -> Iterator[str]:
    """Yields the lines of a C program that prints layouts and values."""
    yield "#include <stdio.h>"
    yield f'#include "{path.resolve()}"'
    yield "int main(void) {"
    yield '  printf("version %d\\n", PAGEMILL_ABI_VERSION);'
    for enum, body in _ENUM.findall(_COMMENT.sub("", header)):
        yield f'  printf("enum {enum} size %zu\\n", sizeof({enum}));'
        for name in re.findall(r"\w+(?= =)", body):
            yield f'  printf("  {name} = %d\\n", {name});'
    for struct, members in itertools.groupby(fields(header), key=lambda row: row[0]):
        yield f'  printf("struct {struct} size %zu\\n", sizeof({struct}));'
        for _, field, kind in members:
            place = f"offsetof({struct}, {field}), sizeof((({struct}*)0)->{field})"
            yield f'  printf("  %zu+%zu {field}: {kind}\\n", {place});'
    yield "}"


def describe(path: pathlib.Path = HEADER) -> list[str]:
    """Returns the lines for the header at `path`."""
    header = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "probe.c"), pathlib.Path(folder, "probe")
        source.write_text("\n".join(_probe(path, header)) + "\n")
        subprocess.run(["gcc", "-Wall", "-Werror", "-o", program, source], check=True)
        probed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return probed.splitlines() + callbacks(header) + functions(header)


if __name__ == "__main__":
    print("\n".join(describe(*map(pathlib.Path, sys.argv[1:]))))
