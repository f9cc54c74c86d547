"""The C ABI is the one that is written down: hosts that are built already keep working."""

import itertools
import re
import subprocess
from pathlib import Path

from cc.capi.abi import description

WRITTEN = Path("cc/capi/abi/pagemill_abi_1.txt")

BROKEN = """\
These facts of the C ABI are gone or changed, so hosts that are built already would break:
{}
Restore them: structs grow at the end only, enumerators keep their values, functions stay. If hosts
must break, raise PAGEMILL_ABI_VERSION, the version in pagemill.lds and the library's soname, and
write the description anew beside the old one."""

GROWN = """\
The C ABI has grown. Write down what is new, so that it stays:
  python3.11 cc/capi/abi/description.py bazel-bin/cc/capi/pagemill.h > {}
New:
{}"""


def _elements(lines: list[str]) -> set[str]:
    """Returns the structs without their size at the begin: elements of arrays, which never grow."""
    return {
        line.split()[1]
        for line, first in itertools.pairwise(lines)
        if line.startswith("struct") and " struct_size: " not in first
    }


def _facts(lines: list[str]) -> list[str]:
    """Returns the lines with the struct or enum that each belongs to; sizes of structs may grow."""
    facts, owner, fixed = [], "", _elements(lines)
    for line in lines:
        if line.startswith(("struct", "enum")):
            owner = line.split(" size")[0]
            facts.append(line if owner.split()[1] in fixed else owner)
        else:
            facts.append(f"{owner} {line.strip()}" if line.startswith(" ") else line)
    return facts


def check(written: list[str], found: list[str]) -> None:
    """Fails with a sentence where a fact that is written down does not hold, or one is not."""
    gone = [fact for fact in _facts(written) if fact not in set(_facts(found))]
    assert not gone, BROKEN.format("\n".join(gone))
    new = [fact for fact in found if fact not in set(written)]
    assert not new, GROWN.format(WRITTEN, "\n".join(new))


def test_abi_is_the_one_written_down() -> None:
    check(WRITTEN.read_text().splitlines(), description.describe())


def test_library_exports_what_the_header_declares() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "cc/capi/libpagemill.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exported = {line.split()[-1] for line in listed.splitlines()} - {"PAGEMILL_1"}
    declared = description.function_names(description.HEADER.read_text())
    assert exported == {f"{name}@@PAGEMILL_1" for name in declared}


def test_every_function_is_called_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path("cc/capi").glob("*_test.cc"))
    called = set(re.findall(r"\b(pagemill_\w+)\(", tests))
    assert description.function_names(description.HEADER.read_text()) - called == set()


def test_structs_begin_with_their_size_and_have_no_padding_at_the_end() -> None:
    """A later field would lie in padding that older hosts have, and do not set."""
    elements = _elements(description.describe())
    ends: dict[str, int] = {}
    sizes: dict[str, int] = {}
    struct = ""
    for line in description.describe():
        if match := re.fullmatch(r"struct (\w+) size (\d+)", line):
            struct = match[1]
            sizes[struct] = int(match[2])
        elif match := re.fullmatch(r"  (\d+)\+(\d+) (\w+): .*", line):
            if struct not in ends and struct not in elements:
                assert (match[1], match[3]) == ("0", "struct_size"), line
            ends[struct] = int(match[1]) + int(match[2])
    assert sizes
    assert sizes == ends


def test_a_change_is_told_from_growth() -> None:
    written = ["struct a size 16", "  0+8 struct_size: size_t", "  8+8 x: uint64_t", "int f(void)"]
    grown = ["struct a size 24", *written[1:3], "  16+8 y: uint64_t", "int f(void)", "int g(void)"]
    for found, sentence in [
        (grown, "has grown"),
        ([*written[:2], "  8+4 x: uint32_t", written[3]], "would break"),
        (written[:3], "would break"),
        (["struct b size 8", *written], "has grown"),
    ]:
        try:
            check(written, found)
        except AssertionError as error:
            assert sentence in str(error)
        else:
            raise AssertionError(f"{found} passes")
    check(written, written)
    element = ["struct b size 8", "  0+8 x: uint64_t"]
    try:
        check(element, ["struct b size 16", element[1], "  8+8 y: uint64_t"])
    except AssertionError as error:
        assert "would break" in str(error)
    else:
        raise AssertionError("an element of arrays grows")
