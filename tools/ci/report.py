"""Reports the slowest targets and unexpected skips of a run of all tests.

    report.py LOG TESTLOGS SKIPS

LOG is the output of `bazel test`, TESTLOGS the folder `bazel-testlogs`, SKIPS the list of allowed
skips. Prints the slowest targets; fails if a target or a test was skipped that is not in the list.
"""

import dataclasses
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator

NUM_SLOWEST = 20

# Bazel's summary has one line a target: `//label   [(cached)] STATE [in N.Ns]`.
_RESULT = re.compile(r"(//\S+) +(?:\(cached\) +)?([A-Z][A-Z ]*[A-Z])(?: in ([\d.]+)s)?\b.*")


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One target: its state, as PASSED or SKIPPED, and the seconds that it took."""

    label: str
    state: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Skip:
    """A target, or one test of it, that was skipped; `*` in a pattern matches any text."""

    label: str
    test: str = ""

    def matches(self, pattern: "Skip") -> bool:
        return _matches(self.label, pattern.label) and _matches(self.test, pattern.test)

    def __str__(self) -> str:
        return f"{self.label} {self.test}".rstrip()


def _matches(text: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def results(log: str) -> list[Result]:
    """The targets of Bazel's summary."""
    found = (_RESULT.fullmatch(line) for line in log.splitlines())
    return [Result(m[1], m[2], float(m[3] or 0)) for m in found if m]


def skipped_tests(report: str) -> Iterator[str]:
    """The names, as `class.test`, of skipped tests in a test.xml of googletest or pytest."""
    for case in ElementTree.fromstring(report).iter("testcase"):
        if case.get("result") == "skipped" or case.find("skipped") is not None:
            yield f"{case.get('classname')}.{case.get('name')}"


def skips(targets: Iterable[Result], testlogs: pathlib.Path) -> Iterator[Skip]:
    """What was skipped: whole targets, and tests inside those that ran."""
    for target in targets:
        if target.state == "SKIPPED":
            yield Skip(target.label)
            continue
        folder = testlogs / target.label.removeprefix("//").replace(":", "/")
        for path in sorted([*folder.glob("test.xml"), *folder.glob("shard_*/test.xml")]):
            for test in skipped_tests(path.read_text("utf-8")):
                yield Skip(target.label, test)


def read_patterns(text: str) -> list[Skip]:
    """Reads the list: each line has a label, then a test unless the whole target may be skipped."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [Skip(*words) for words in lines if words]


def main(log: pathlib.Path, testlogs: pathlib.Path, expected: pathlib.Path) -> int:
    targets = results(log.read_text("utf-8", "replace"))
    patterns = read_patterns(expected.read_text("utf-8"))
    print(f"The {NUM_SLOWEST} slowest targets, in seconds:")
    for target in sorted(targets, key=lambda target: -target.seconds)[:NUM_SLOWEST]:
        print(f"{target.seconds:8.1f} {target.label}")
    unexpected = [
        skip
        for skip in skips(targets, testlogs)
        if not any(skip.matches(pattern) for pattern in patterns)
    ]
    for skip in unexpected:
        print(f"Skipped, and not listed in {expected}: {skip}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(*map(pathlib.Path, sys.argv[1:])))
