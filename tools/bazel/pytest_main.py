"""Runs pytest as Bazel expects of a test: `pytest_main.py ROOT FILE...`."""

import gc
import os
import pathlib
import sys
from collections.abc import Generator

import pytest

# Plugin -> the word in test files that need it. Each plugin takes 0.3 s of processor time to load,
# more than most tests take.
_PLUGINS = {"anyio": "anyio", "hypothesispytest": "hypothesis", "schemathesis": "schemathesis"}
_PROFILE = "bazel"  # of Hypothesis


def _plugin_options(files: list[str]) -> list[str]:
    text = "".join(pathlib.Path(file).read_text("utf-8") for file in files if file.endswith(".py"))
    unneeded = [plugin for plugin, word in _PLUGINS.items() if word not in text]
    options = [option for plugin in unneeded for option in ("-p", f"no:{plugin}")]
    if "hypothesispytest" not in unneeded:
        # Reproducible; see docs/build.md.
        options += ["--hypothesis-seed=0", f"--hypothesis-profile={_PROFILE}"]
    return options


class _HypothesisProfile:
    """Examples have no time limit of their own: a busy machine exceeds the library's, 0.2 s."""

    @pytest.hookimpl(tryfirst=True)  # in front of the library's plugin, which loads it
    def pytest_configure(self, config: pytest.Config) -> None:
        if config.getoption("--hypothesis-profile", None) == _PROFILE:
            from hypothesis import settings

            settings.register_profile(_PROFILE, deadline=None)


class _CollectedWithoutGarbageCollection:
    """What imports create lives until the process ends, so garbage collections skip it.

    They free nothing during imports, and are 2 of the 5 s of processor time that a test of torch
    and transformers takes to import them and to end.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()


def main(root: str, files: list[str]) -> int:
    """Runs the files' tests and returns the exit status; a file without tests fails."""
    scratch = os.environ.get("TEST_TMPDIR", "")
    if scratch:
        os.environ["HOME"] = scratch
        os.environ["XDG_CACHE_HOME"] = os.path.join(scratch, "cache")
    arguments = [
        "-c", os.devnull,
        "--rootdir", root,
        "--confcutdir", root,
        "--import-mode=importlib",
        "-p", "no:cacheprovider",
        "-ra",
        *_plugin_options(files),
        *files,
    ]  # fmt: skip
    if scratch:
        arguments += ["--basetemp", os.path.join(scratch, "pytest")]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        arguments += ["--junitxml", report]
    name_filter = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if name_filter:
        arguments += ["-k", name_filter]
    status = pytest.main(
        arguments, plugins=[_HypothesisProfile(), _CollectedWithoutGarbageCollection()]
    )
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and name_filter:
        return 0  # the filter of a run over many targets need not match in each of them
    return int(status)


if __name__ == "__main__":
    # Arguments after the files come from `--test_arg`.
    sys.exit(main(sys.argv[1], sys.argv[2:]))
