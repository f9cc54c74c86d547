"""The SDK archive is self-contained: its examples build with plain gcc and g++, and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pagemill
import pytest
from pagemill.cli.program import run

from tests.embed.sdk_archive import SDK, output, unpack

MODEL = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")

pytestmark = pytest.mark.skipif(
    not SDK or not MODEL, reason="PAGEMILL_TEST_SDK or _SMOLLM2_GGUF is not set"
)

PROMPT = "The capital of France is"
MAX_TOKENS = 8

# Functions of the C library that start threads, or read and write files and sockets.
IMPURE = re.compile(
    r"pthread_create|std::thread|std::.*filebuf|\b(fopen|open|read|write|socket|mmap|getenv|rand|"
    r"time|clock_gettime)(@.*)?$"
)


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("sdk"))


@pytest.fixture(scope="module")
def examples(sdk: Path) -> Path:
    done = subprocess.run(
        ["make", "-C", str(sdk / "examples")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr
    return sdk / "examples/bin"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    assert run(["export", MODEL, "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def expected() -> pagemill.RequestOutput:
    with pagemill.LLM(MODEL, max_model_len=512, max_num_seqs=4) as llm:
        (output,) = llm.generate([PROMPT], temperature=0.0, max_tokens=MAX_TOKENS)
    return output


def test_has_licence_readme_and_parts(sdk: Path) -> None:
    names = {str(path.relative_to(sdk)) for path in sdk.rglob("*") if path.is_file()}
    assert {"LICENSE", "licenses/xxhash.txt", "README.md", "include/pagemill.h"} < names
    assert {Path(name).name for name in names if name.startswith("lib/")} == {
        "libpagemill.so",
        "libpagemill_engine.a",
        "libpagemill_scheduler.a",
        "PagemillConfig.cmake",
        "PagemillConfigVersion.cmake",
        "pagemill.pc",
        "pagemill-engine.pc",
        "pagemill-scheduler.pc",
    }
    assert {"docs/kv_cache.md", "docs/kv_tiers.md", "docs/scheduling.md"} < names
    assert not [name for name in names if re.search(r"_test\.|/internal/|BUILD", name)]


def test_links_of_pages_lead_somewhere(sdk: Path) -> None:
    links = {
        (page, link)
        for page in [sdk / "README.md", *sdk.glob("docs/*.md")]
        for link in re.findall(r"\]\(([^)#:]+)", page.read_text())
    }
    assert (sdk / "README.md", "examples/embed_scheduler/toy_runner.h") in links
    assert (sdk / "docs/kv_cache.md", "kv_tiers.md") in links
    assert len(links) > 6
    assert [link for page, link in links if not (page.parent / link).exists()] == []


def test_shared_library_exports_the_c_abi_only(sdk: Path) -> None:
    symbols = output("nm", "-D", "--defined-only", sdk / "lib/libpagemill.so")
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    names.discard("PAGEMILL_1")  # the version itself
    header = (sdk / "include/pagemill.h").read_text()
    assert names == set(re.findall(r"^PAGEMILL_API [^;(]*?(\w+)\(", header, re.MULTILINE))


def test_scheduler_library_is_pure(sdk: Path) -> None:
    undefined = output("nm", "-uC", sdk / "lib/libpagemill_scheduler.a")
    symbols = [line.split(maxsplit=1)[1] for line in undefined.splitlines() if " U " in line]
    assert symbols
    assert not [symbol for symbol in symbols if IMPURE.search(symbol)]


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("drafts", "drafts accepted"),
        ("embed_scheduler", "12 requests"),
        ("hybrid_groups", "found in all three groups"),
        ("kv_tiers", "came from host memory"),
        ("steps_in_flight", "began before the result"),
    ],
)
def test_scheduler_examples(examples: Path, program: str, says: str) -> None:
    assert says in output(examples / program)


def test_engine_example(examples: Path, exported: Path, expected: pagemill.RequestOutput) -> None:
    text = output(examples / "embed_engine", exported, PROMPT, str(MAX_TOKENS))
    assert text == PROMPT + expected.choices[0].text + "\n"


def test_c_example(examples: Path, exported: Path, expected: pagemill.RequestOutput) -> None:
    prompt = [str(token) for token in expected.prompt_token_ids]
    program = exported / "model.program"
    tokens = output(examples / "embed_c", program, str(MAX_TOKENS), *prompt)
    assert [int(token) for token in tokens.split()] == list(expected.choices[0].token_ids)
    refused = subprocess.run(
        [examples / "embed_c", exported / "none", "8", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "cannot read the program" in refused.stderr


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")
def test_pkg_config_files_suffice(sdk: Path, exported: Path, tmp_path: Path) -> None:
    engine = ["embed_engine/main.cc", "embed_engine/bpe.cc"]
    scheduler = ["embed_scheduler/main.cc", "embed_scheduler/toy_runner.cc"]
    builds = {
        "pagemill": ["gcc", "embed_c/main.c"],
        "pagemill-engine": ["g++", "-std=c++20", *engine],
        "pagemill-scheduler": ["g++", "-std=c++20", *scheduler],
    }
    environment = {**os.environ, "PKG_CONFIG_PATH": str(sdk / "lib/pkgconfig")}
    for package, (compiler, *arguments) in builds.items():
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", package],
            capture_output=True,
            env=environment,
            text=True,
            check=True,
        ).stdout.split()
        binary = tmp_path / package
        command = [compiler, *arguments, *flags, "-o", str(binary)]
        subprocess.run(command, check=True, cwd=sdk / "examples")
    assert "12 requests" in output(tmp_path / "pagemill-scheduler")
    assert PROMPT in output(tmp_path / "pagemill-engine", exported, PROMPT, "2")
    assert output(tmp_path / "pagemill", exported / "model.program", "2", "504").split()
