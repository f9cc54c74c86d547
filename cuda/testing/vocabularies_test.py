"""HIP has every word of the vocabulary that nvcc has: its compiler is missing on most machines."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "internal"


def words(header: str) -> set[str]:
    """Names of macros, types, constants and functions that a vocabulary defines."""
    text = (FOLDER / header).read_text(encoding="utf-8")
    patterns = [
        r"^#define (\w+)",
        r"^using (\w+) =",
        r"^struct (?:alignas\(\d+\) )?(\w+) {",
        r"^inline constexpr \w+ (\w+) =",
        r"^PAGEMILL_DEVICE [^(]*?(\w+)\(",
    ]
    found = [name for pattern in patterns for name in re.findall(pattern, text, re.MULTILINE)]
    return {name for name in found if not name.endswith("_H_")}


def test_words_are_found() -> None:
    """One of each kind."""
    known = {"PAGEMILL_KERNEL", "LaneMask", "kHasMma", "Lane", "DynamicShared", "AllLanes"}
    assert known <= words("nvcc_vocabulary.h")


def test_hip_has_every_word() -> None:
    """A new word needs a body in hip_vocabulary.h."""
    assert not words("nvcc_vocabulary.h") - words("hip_vocabulary.h")
