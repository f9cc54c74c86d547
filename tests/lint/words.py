"""Words that must not stand in files, and names that files must not have."""

import re
from collections.abc import Iterator

from tests.source_tree import SourceFile

# Written so that no pattern matches its own source.
_RULES = (
    (
        re.compile(r"(?<![\w.}])/(work|root|home/\w+|Users/\w+)/[\w.]"),
        "is a path of one machine",
    ),
    (
        re.compile(
            r"\b(pypi[.](org|io)|pythonhosted[.]org|registry[.]npmjs|deb[.]debian|"
            r"download[.]pytorch[.]org)"
        ),
        "is the host of a package registry; leave it to the machine's own configuration",
    ),
)

# Phrases that cost every new reader time, with what to write instead.
_DIALECT = (
    (
        re.compile(r"\b((no|any|some|every)[b]ody|who[e]ver)\b", re.IGNORECASE),
        "name the thing that acts",
    ),
    (re.compile(r"\bbut for\b", re.IGNORECASE), 'write "except"'),
    (re.compile(r"\b(null|empty|none|None|zero|true|false) whe[r]e\b"), 'write "if"'),
    (re.compile(r"\bbe (it|they)\b", re.IGNORECASE), 'write "even" or "whether"'),
    (re.compile(r"\bst(and|ands|ood) out\b", re.IGNORECASE), 'write "outlier"'),
    (re.compile(r"\bg(iven|ives?) back\b", re.IGNORECASE), 'write "returned" or "freed"'),
    (re.compile(r"\b(is|are|was|were) told\b", re.IGNORECASE), 'write "receives" or "knows"'),
    (re.compile(r"\bhears? o[f]\b", re.IGNORECASE), 'write "receives", "reads" or "is called for"'),
    (re.compile(r"\bg(ives?|iving|ave) w[a]y\b", re.IGNORECASE), 'write "is evicted", "yields"'),
    (re.compile(r"\b(go|goes|went|gone|going) on fr[o]m\b"), 'write "continues from"'),
    (re.compile(r"\b(is|are) n[o] (multiple|list|object|member|number)\b"), 'write "is not a ..."'),
    (re.compile(r"(//|#) O[f] (the|a|each|one|all)\b"), "begin with what is described"),
    (re.compile(r"(//|#) (Is|Does|Are|Has|Can) [^.]*[?]$"), 'write "True if ..."'),
    (
        re.compile(r"\b(tiles?|registers?|rows|kernels?|integers) of (AMX|AVX|VNNI|SSE)"),
        'write "AMX tiles", "AVX2 kernels"',
    ),
)

# Of kernels, names included.
_KERNEL_DIALECT = (
    (re.compile(r"[Ss]trip(?!e)"), 'write "activations", or "chunk" of rows'),
    (re.compile(r"[Pp]anel"), 'write "packed weights", or "slice" of them'),
)

# A manual or a comment may show a command with such a path; code asks for a temporary folder.
_TEMPORARY_PATH = re.compile(r"(?<=[\"'])/tmp/[\w.]")

_VAGUE_NAMES = {"util", "utils", "common", "helper", "helpers", "misc", "manager2"}

# Labels there are those of other projects' modules.
_FOREIGN_NAMES = "third_party/bazel4/"

_PYTHON_ENVIRONMENT = re.compile(r"\b(os[.]environ|os[.]getenv|os[.]putenv|from os import environ)")
_CC_ENVIRONMENT = re.compile(r"\b(getenv|setenv|putenv)\s*\(")
_ENVIRONMENT_READER = "python/pagemill/config/env.py"
_ENVIRONMENT_NAME = re.compile(r"[\"'](PAGEMILL_[A-Z0-9_]+)[\"']")
ENVIRONMENT_NAMES = 8


def _environment_errors(file: SourceFile) -> Iterator[str]:
    """One file reads the environment; what a test sets is the test's own business."""
    if re.search(r"_test\.\w+$|/testing/", file.path):
        return
    if file.path == _ENVIRONMENT_READER:
        names = set(_ENVIRONMENT_NAME.findall(file.text))
        if len(names) > ENVIRONMENT_NAMES:
            yield f"{file.path}: {len(names)} variables, at most {ENVIRONMENT_NAMES}"
    elif file.parts[:2] == ("python", "pagemill"):
        for word in _PYTHON_ENVIRONMENT.findall(file.text):
            yield f"{file.path}: {word}: only {_ENVIRONMENT_READER} reads the environment"
    elif file.parts[0] in {"cc", "cuda", "hip", "sycl"}:
        for word in _CC_ENVIRONMENT.findall(file.text):
            yield f"{file.path}: {word}: C++ takes options, not environment variables"


def errors(file: SourceFile) -> Iterator[str]:
    """Yields one line per offence."""
    dialect = _DIALECT + (_KERNEL_DIALECT if file.parts[:2] == ("cc", "ops") else ())
    for number, line in enumerate(file.text.split("\n"), start=1):
        for pattern, reason in _RULES:
            if match := pattern.search(line):
                yield f"{file.path}:{number}: {match.group()} {reason}"
        for pattern, advice in dialect:
            if match := pattern.search(line):
                yield f"{file.path}:{number}: {match.group()!r}: {advice}"
        if not file.path.endswith(".md") and (match := _TEMPORARY_PATH.search(line)):
            yield f"{file.path}:{number}: {match.group()} is not a temporary folder of one's own"
    for part in file.parts if not file.path.startswith(_FOREIGN_NAMES) else ():
        if part.split(".")[0] in _VAGUE_NAMES:
            yield f"{file.path}: {part} says nothing about what is inside"
    yield from _environment_errors(file)
