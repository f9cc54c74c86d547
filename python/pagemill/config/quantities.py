"""Numbers as people write them: 2048, 4k (4,000), 4K (4,096), 25.6k, 4GiB, 500MB.

Lower-case `k` and `m` are decimal and upper-case `K` and `M` binary, as in vLLM; for bytes, `kB`,
`MB` and `GB` are decimal, and `KiB`, `MiB` and `GiB`, or a bare `K`, `M`, `G`, binary.
"""

import re

_COUNT_SUFFIXES = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
}
_BYTE_SUFFIXES = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_NUMBER = re.compile(r"\s*([+-]?)(\d{1,18})(?:\.(\d{1,9}))?\s*([A-Za-z]*)\s*")


def parse_count(text: str) -> int:
    """Returns the integer that `text` stands for: "16", "2k", "2K", "25.6k".

    Raises:
      ValueError: `text` is not a number with a known suffix, or not a whole number.
    """
    return _scaled(text, _COUNT_SUFFIXES, "k, m, g (powers of 1000) or K, M, G (powers of 1024)")


def parse_bytes(text: str) -> int:
    """Returns the number of bytes that `text` stands for: "1073741824", "1GiB", "500MB".

    Raises:
      ValueError: `text` is not a number with a known suffix, or not a whole number.
    """
    return _scaled(text, _BYTE_SUFFIXES, "kB, MB, GB, TB, KiB, MiB, GiB or TiB")


def format_bytes(count: int) -> str:
    """Returns `count` bytes for people: "940 B", "93.8 MiB", "1.50 GiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            if unit == "B":
                return f"{count} B"
            return f"{value:.2f} {unit}" if unit == "GiB" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def _scaled(text: str, suffixes: dict[str, int], known: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match.group(4) not in suffixes:
        raise ValueError(f"{text!r} is not a number, with or without a suffix {known}")
    sign, whole, fraction, suffix = match.groups()
    fraction = fraction or ""
    # Exact integer arithmetic: 25.6k is 25600, not 25599.999...
    scaled = int(whole + fraction) * suffixes[suffix]
    value, rest = divmod(scaled, 10 ** len(fraction))
    if rest:
        raise ValueError(f"{text!r} is not a whole number")
    return -value if sign == "-" else value
