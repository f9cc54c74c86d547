"""The Containerfile says what is so: flags, variables, port and wheels are those of this tree."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from pagemill.cli.serve import parser
from pagemill.config import ServeConfig, ServerConfig
from pagemill.config.env import NAMES, read_environment

from tests.containers.containerfile import Instruction, instructions
from tests.source_tree import ROOT

_PATH = "tools/containers/Containerfile"


@pytest.fixture(scope="module")
def steps() -> list[Instruction]:
    return instructions((ROOT / _PATH).read_text("utf-8"))


def _only(steps: list[Instruction], name: str) -> str:
    (value,) = [step.value for step in steps if step.name == name]
    return value


def test_instructions_are_read() -> None:
    text = "# comment\nFROM a\nRUN b && \\\n    c\n\nUSER d\n"
    expected = [("FROM", "a"), ("RUN", "b && c"), ("USER", "d")]
    assert instructions(text) == expected


def test_every_instruction_is_one_that_builders_know(steps: list[Instruction]) -> None:
    known = {"ARG", "FROM", "RUN", "ENV", "VOLUME", "USER", "EXPOSE", "ENTRYPOINT"}
    assert {step.name for step in steps} <= known
    assert [step.name for step in steps][:2] == ["ARG", "FROM"]
    assert steps[-1].name == "ENTRYPOINT"


def test_it_starts_the_server_with_flags_that_there_are(steps: list[Instruction]) -> None:
    program, command, *flags = json.loads(_only(steps, "ENTRYPOINT"))
    scripts = (ROOT / "python/BUILD.bazel").read_text("utf-8")
    assert f'console_scripts = ["{program}=' in scripts and command == "serve"
    read = parser()
    config = read.read(ServeConfig, read.parse_args(flags))
    assert config.server.host == "0.0.0.0"
    assert int(_only(steps, "EXPOSE")) == config.server.port == ServerConfig().port


def test_variables_are_those_that_are_read(steps: list[Instruction]) -> None:
    variables = dict(each.split("=", 1) for each in shlex.split(_only(steps, "ENV")))
    own = {name: value for name, value in variables.items() if name.startswith("PAGEMILL_")}
    assert own.keys() <= set(NAMES)
    assert str(read_environment(own).cache_dir) == _only(steps, "VOLUME")


def test_it_runs_as_a_user_that_owns_the_cache_folder(steps: list[Instruction]) -> None:
    user, run = _only(steps, "USER"), _only(steps, "RUN")
    assert user not in ("root", "0")
    assert re.search(rf"useradd .*\b{user}\b", run)
    assert f"--owner={user} {_only(steps, 'VOLUME')}" in run


def test_every_wheel_of_the_context_is_installed(steps: list[Instruction]) -> None:
    run = _only(steps, "RUN")
    mounted = re.search(r"--mount=type=bind,target=(\S+)", run)
    assert mounted is not None and f"{mounted[1]}/*.whl" in run


def test_its_python_is_that_of_the_wheel(steps: list[Instruction]) -> None:
    version = next(step.value for step in steps if step.name == "ARG").removeprefix("PYTHON=")
    oldest = f"_OLDEST_PYTHON = ({version.replace('.', ', ')})"
    assert oldest in (ROOT / "tools/bazel/python_env.bzl").read_text("utf-8")
    assert re.fullmatch(r"python:\$\{PYTHON\}-slim-\w+", _only(steps, "FROM"))


def test_the_manual_names_it_and_its_arguments(steps: list[Instruction]) -> None:
    manual = (ROOT / "docs/operations.md").read_text("utf-8")
    assert _PATH in manual
    named = set(re.findall(r"--build-arg (\w+)=", manual))
    arguments = {step.value.partition("=")[0] for step in steps if step.name == "ARG"}
    assert named and named <= arguments
