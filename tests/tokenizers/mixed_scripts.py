"""Lines of mixed scripts, the same in every run: what implementations of tokenizers disagree on."""

from __future__ import annotations

import random
from collections.abc import Iterator

# First and last code points of blocks; half of the words are of the first ones.
_LETTERS = (
    (0x61, 0x7A),  # Latin
    (0x41, 0x5A),
    (0xC0, 0x17F),  # with accents
    (0x370, 0x3FF),  # Greek
    (0x400, 0x4FF),  # Cyrillic
    (0x531, 0x587),  # Armenian
    (0x5D0, 0x5EA),  # Hebrew
    (0x620, 0x6D3),  # Arabic
    (0x904, 0x94F),  # Devanagari, with its signs
    (0x985, 0x9CD),  # Bengali
    (0xE01, 0xE4E),  # Thai
    (0x10D0, 0x10FA),  # Georgian
    (0x1100, 0x1112),  # Hangul, as parts
    (0xAC00, 0xD7A3),  # and as syllables
    (0x3041, 0x3096),  # Hiragana
    (0x30A1, 0x30FA),  # Katakana
    (0x4E00, 0x9FFF),  # Han
    (0x20000, 0x2A6DF),  # Han beyond 16 bits
    (0x1D400, 0x1D7FF),  # letters of mathematics, which are folded by some
    (0xFF21, 0xFF5A),  # of full width
)
_COMBINING = ((0x300, 0x36F), (0x64B, 0x65F), (0x93C, 0x94D), (0x20D0, 0x20DC))
_EMOJI = ("😀", "👩‍👩‍👧‍👦", "🇩🇪🇯🇵", "👍🏽", "❤️", "☕", "🏴‍☠️", "1️⃣", "🫠")
_SPACES = (
    *" " * 12,
    "  ",
    "   ",
    "\t",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u200b",
    "\u2028",
    "\r\n",
    "\n",
    "\n\n ",
)
_CODE = (
    "def f(x: int) -> str:\n    return f'{x ** 2}'  # ok",
    '{"a": [1, 2, {"b": null}], "c": "\\u00e9"}',
    "if (a <= b && !c) { x->y[i] += 0x1F; }",
    "SELECT * FROM t WHERE id = 'x''y';",
    '<div class="a">&amp;</div>',
    "https://example.org/a?b=c&d=%20#e",
    "user.name+tag@example.co.uk",
)
_DIGITS = ("0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¼½")
_MARKS = ".,;:!?'\"`´’“”«»()[]{}<>/\\|@#$%^&*-_=+~…—–·•§©®™€£¥、。「」¿¡▁Ġ"
_OTHER = (
    "I'm",
    "you're",
    "THEY'LL",
    "he'd",
    "\ufeff",
    "\ufffd",
    "\x01",
    "\x7f",
    "ﬁ",
    "Å",
    "ß",
    "İ",
    "ǆ",
)


def mixed_lines(count: int, *, seed: int = 0) -> list[str]:
    """`count` lines of one to twelve words of any script, marks, numbers, emoji and code, with
    spaces of all kinds between them; some lines are spaces alone."""
    rng = random.Random(seed)
    return ["".join(_line(rng)) for _ in range(count)]


def _line(rng: random.Random) -> Iterator[str]:
    if rng.random() < 0.3:
        yield rng.choice(_SPACES)
    # A script for most of the line, as people write.
    script = rng.choice(_LETTERS)
    for _ in range(rng.randint(1, 12)):
        yield _word(rng, script if rng.random() < 0.7 else rng.choice(_LETTERS))
        if rng.random() < 0.8:
            yield rng.choice(_SPACES)


def _word(rng: random.Random, script: tuple[int, int]) -> str:
    kind = rng.random()
    if kind < 0.6:
        return "".join(_letters(rng, script))
    if kind < 0.7:
        digits = rng.choice(_DIGITS)
        return "".join(rng.choice(digits + ".,") for _ in range(rng.randint(1, 9)))
    if kind < 0.8:
        return rng.choice(_MARKS) * rng.randint(1, 3) + rng.choice(_MARKS)
    if kind < 0.88:
        return rng.choice(_EMOJI) * rng.randint(1, 2)
    return rng.choice(_CODE if kind < 0.94 else _OTHER)


def _letters(rng: random.Random, script: tuple[int, int]) -> Iterator[str]:
    for _ in range(rng.randint(1, 8)):
        yield chr(rng.randint(*script))
        if rng.random() < 0.05:
            yield chr(rng.randint(*rng.choice(_COMBINING)))
