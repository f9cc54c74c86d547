"""All places that contain the version agree."""

import re

import pytest

from tests.source_tree import ROOT


def _version(path: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert match, f"{path} states no version"
    return match.group(1)


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("MODULE.bazel", r'name = "pagemill",\s+version = "([^"]+)"'),
        ("python/pagemill/__init__.py", r'^__version__ = "([^"]+)"'),
    ],
)
def test_version_is_that_of_version_bzl(path: str, pattern: str):
    assert _version(path, pattern) == _version("version.bzl", r'^VERSION = "([^"]+)"')
