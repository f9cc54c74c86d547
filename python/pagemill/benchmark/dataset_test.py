"""Data sets, and the loads that are made of them."""

import json
from pathlib import Path

import pytest

from pagemill.benchmark import dataset
from pagemill.benchmark.dataset import read_dataset
from pagemill.benchmark.load_generator import Request
from pagemill.benchmark.serving import LoadConfig, requests_of
from pagemill.config import ConfigError


def _file(tmp_path: Path, *lines: object) -> str:
    path = tmp_path / "prompts.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return str(path)


def test_lines_become_requests(tmp_path: Path) -> None:
    path = _file(tmp_path, {"prompt": "schön", "max_tokens": 3}, "", {"prompt": "b", "id": 1}, "{")
    first, second = Request("schön", 3), Request("b", 16)
    assert read_dataset(path, 2, 16) == [first, second]  # the bad line is not needed
    assert read_dataset(path, 1, 16) == [first]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "it is not JSON"),
        ("[" * 10**5, "it is not JSON"),
        ("[]", 'expected an object with a text "prompt"'),
        ('{"prompt": ""}', 'expected an object with a text "prompt"'),
        ('{"prompt": [1, 2]}', 'expected an object with a text "prompt"'),
        ('{"prompt": "a", "max_tokens": 0}', '"max_tokens" is not an integer'),
        ('{"prompt": "a", "max_tokens": true}', '"max_tokens" is not an integer'),
        (json.dumps({"prompt": "a" * 2**20}), "longer than 1 MiB"),
    ],
)
def test_bad_lines_are_named(line: str, words: str, tmp_path: Path) -> None:
    path = _file(tmp_path, {"prompt": "a"}, "", line)
    with pytest.raises(ConfigError, match=rf"--dataset .*prompts\.jsonl, line 3: {words}"):
        read_dataset(path, 5, 16)


def test_files_without_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="it has no requests"):
        read_dataset(_file(tmp_path, ""), 5, 16)
    with pytest.raises(ConfigError, match="No such file"):
        read_dataset(str(tmp_path / "nothing"), 5, 16)
    monkeypatch.setattr(dataset, "_MAX_BYTES", 40)
    with pytest.raises(ConfigError, match="line 3: more than 256 MiB"):
        read_dataset(_file(tmp_path, *[{"prompt": "a"}] * 9), 9, 16)


def test_warm_ups_are_the_lines_after_those_measured(tmp_path: Path) -> None:
    path = _file(tmp_path, *[{"prompt": str(i)} for i in range(4)])

    def prompts(num_prompts: int) -> tuple[list[object], list[object]]:
        config = LoadConfig(dataset=path, num_prompts=num_prompts, num_warmups=2)
        warmups, measured = requests_of(config)
        return [each.prompt for each in warmups], [each.prompt for each in measured]

    assert prompts(1) == (["1", "2"], ["0"])
    assert prompts(3) == (["3"], ["0", "1", "2"])
    assert prompts(9) == ([], ["0", "1", "2", "3"])


def test_chats_need_texts() -> None:
    with pytest.raises(ConfigError, match="/v1/chat/completions needs --dataset"):
        LoadConfig(endpoint="/v1/chat/completions")
    with pytest.raises(ConfigError, match="--endpoint"):
        LoadConfig(endpoint="/v1/embeddings")
