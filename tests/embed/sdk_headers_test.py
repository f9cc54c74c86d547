"""The SDK's headers stand alone, and declare and define only names that begin with Pagemill's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embed.sdk_archive import SDK, output, unpack

pytestmark = pytest.mark.skipif(not SDK, reason="PAGEMILL_TEST_SDK is not set")

_TOKEN = re.compile(r'[A-Za-z_]\w*|[{}();]|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_LINE_MARKER = re.compile(r'# \d+ "([^"]+)"')
_C_WORDS = {"char", "const", "double", "enum", "float", "int", "struct", "typedef", "void"}
_C_TYPES = {"int32_t", "int64_t", "size_t", "uint32_t", "uint64_t", "uint8_t"}


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("sdk")) / "include"


def cc_headers(include: Path) -> list[str]:
    return sorted(str(path.relative_to(include)) for path in include.glob("pagemill/**/*.h"))


def own_text(preprocessed: str, folder: Path) -> str:
    """The lines of preprocessed code that come from files in `folder`."""
    lines: list[str] = []
    own = False
    for line in preprocessed.splitlines():
        if marker := _LINE_MARKER.match(line):
            own = marker[1].startswith(str(folder))
        elif own and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines)


def global_statements(text: str) -> Iterator[list[str]]:
    """Yields the words of each declaration outside all braces and parentheses."""
    depth = 0
    words: list[str] = []
    for token in _TOKEN.findall(text):
        if token in "({":
            depth += 1
        elif token in ")}":
            depth -= 1
        elif depth == 0 and token != ";":
            words.append(token)
        if depth == 0 and token in "};" and words and (token == ";" or words[0] == "namespace"):
            yield words
            words = []
    assert depth == 0 and not words


def leaks_of_cc(text: str) -> list[str]:
    """The declarations outside namespace pagemill, except std::hash of a type of Pagemill's."""
    own = re.compile(r"namespace pagemill\b|template( typename \w+)* struct std hash pagemill\b")
    statements = map(" ".join, global_statements(text))
    return [statement for statement in statements if not own.match(statement)]


def leaks_of_c(text: str) -> list[str]:
    """The names, enumerators included, that begin neither with pagemill_ nor with PAGEMILL_."""
    enumerators = re.findall(r"enum\s+\w+\s*{([^}]*)}", text)
    names = {name for group in enumerators for name in re.findall(r"[A-Za-z_]\w*", group)}
    names |= {word for words in global_statements(text) for word in words}
    own = ("pagemill_", "PAGEMILL_")
    return sorted(
        name for name in names - _C_WORDS - _C_TYPES if not name.startswith((*own, "__", '"'))
    )


def test_every_header_stands_alone(include: Path, tmp_path: Path) -> None:
    headers = cc_headers(include)
    source = tmp_path / "all.cc"
    for order in (headers, headers[::-1]):
        source.write_text("".join(f'#include "{header}"\n' for header in order))
        output("g++", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", f"-I{include}", source)
    for compiler in (["gcc", "-std=c99", "-xc"], ["g++", "-std=c++98", "-xc++"]):
        flags = ["-Wall", "-Wpedantic", "-Wno-long-long", "-fsyntax-only"]
        output(*compiler, *flags, include / "pagemill.h")


def test_hosts_include_what_the_documentation_names(include: Path) -> None:
    documented = set(
        re.findall(r"`(pagemill[\w/]*\.h)`", (include.parent / "README.md").read_text())
    )
    assert {
        "pagemill.h",
        "pagemill/engine/engine.h",
        "pagemill/scheduler/scheduler.h",
    } <= documented
    assert [name for name in documented if not (include / name).is_file()] == []


def test_nothing_includes_the_source_tree(include: Path) -> None:
    sources = [path for path in include.parent.rglob("*") if path.suffix in {".h", ".cc", ".c"}]
    assert len(sources) > 50
    for path in sources:
        for name in re.findall(r'#\s*include\s*["<]([^">]+)[">]', path.read_text()):
            assert "/" not in name or re.match(r"pagemill/|sys/", name), f"{path}: {name}"


def test_macros_are_named_for_pagemill(include: Path) -> None:
    for path in include.rglob("*.h"):
        macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", path.read_text(), re.MULTILINE)
        assert macros, f"{path} has no include guard"
        assert [name for name in macros if not name.startswith("PAGEMILL_")] == [], path


def test_no_header_declares_a_foreign_global_name(include: Path, tmp_path: Path) -> None:
    source = tmp_path / "all.cc"
    source.write_text("".join(f'#include "{header}"\n' for header in cc_headers(include)))
    text = own_text(output("g++", "-std=c++20", "-E", f"-I{include}", source), include)
    assert "namespace pagemill::scheduler" in text
    assert leaks_of_cc(text) == []
    text = own_text(output("gcc", "-std=c99", "-xc", "-E", include / "pagemill.h"), include)
    assert "pagemill_engine_submit" in text
    assert leaks_of_c(text) == []


@pytest.mark.parametrize(
    "text",
    ["int x;", "struct A { int b; };", "namespace other { void f(); }", "inline int g() { } ;"],
)
def test_a_leak_is_found(text: str) -> None:
    assert len(leaks_of_cc(f"namespace pagemill::a {{ int b(int c); }}\n{text}")) == 1


def test_a_leak_of_the_c_header_is_found() -> None:
    assert leaks_of_c("typedef enum pagemill_a { PAGEMILL_B, C = 1 } pagemill_a;") == ["C"]
    assert leaks_of_c("int32_t pagemill_f(int x);\nvoid g(void);") == ["g"]


def test_static_libraries_define_no_foreign_symbol(include: Path) -> None:
    for library in (include.parent / "lib").glob("*.a"):
        symbols = subprocess.run(
            ["nm", "-gC", "--defined-only", library], capture_output=True, text=True, check=True
        ).stdout
        # Kinds: code, data, constants. Weak ones (V, W) are templates and inline functions.
        strong = re.findall(r"^[0-9a-f]+ [BDRT] (.*)$", symbols, re.MULTILINE)
        assert len(strong) > 100
        foreign = [name for name in strong if not re.match(r"(\w+ for )?(\S+ )?pagemill::", name)]
        assert foreign == [], library.name
