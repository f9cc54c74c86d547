"""Data sets, random requests, and the loads that are made of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagemill.benchmark import dataset_records
from pagemill.benchmark.dataset import read_dataset
from pagemill.benchmark.prompts import (
    PromptConfig,
    Request,
    distinct_prompt_tokens,
    random_requests,
)
from pagemill.benchmark.serving import LoadConfig, requests_of
from pagemill.config import ConfigError

_IDS = range(256, 1000)


def _file(tmp_path: Path, *lines: object) -> str:
    path = tmp_path / "prompts.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return str(path)


def _words(text: str) -> int:
    return len(text.split())


def _read(path: str, count: int = 9, **options: Any) -> list[Request]:
    return read_dataset(PromptConfig(dataset=path, **options), count, _words)


def test_lines_become_requests(tmp_path: Path) -> None:
    path = _file(tmp_path, {"prompt": "schön", "max_tokens": 3}, "", {"prompt": "b", "id": 1}, "{")
    first, second = Request("schön", 3), Request("b", 16)
    assert _read(path, 2, output_len=16) == [first, second]  # the bad line is not needed
    assert _read(path, 1, output_len=16) == [first]
    assert _read(path, 2)[1] == Request("b", 128)


_TURNS = [
    {"from": "human", "value": "why blue"},
    {"from": "gpt", "value": "it is so"},
    {"from": "human", "value": "and red?"},
]
_MESSAGES = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": "why blue"},
    {"role": "assistant", "content": "it is so"},
]


@pytest.mark.parametrize(
    ("record", "request_"),
    [
        ({"id": "a", "conversations": _TURNS}, Request("why blue", 3)),
        ({"messages": _MESSAGES}, Request("why blue", 3)),
        ({"prompt": _MESSAGES[:2]}, Request("why blue", 128)),
        ({"turns": ["why blue", "and red"]}, Request("why blue", 128)),
        ({"question": "2 + 2?", "answer": "it is 4"}, Request("2 + 2?", 3)),
        ({"problem": "2 + 2?", "solution": "4"}, Request("2 + 2?", 1)),
        ({"instruction": "Sum up.", "input": "a b", "output": "c"}, Request("Sum up.\n\na b", 1)),
        ({"prompt": "a", "response": "b c", "max_tokens": 7}, Request("a", 7)),
    ],
)
def test_published_formats(record: Any, request_: Request, tmp_path: Path) -> None:
    assert _read(_file(tmp_path, record)) == [request_]
    array = tmp_path / "data.json"
    array.write_text(json.dumps([record, record], indent=1), encoding="utf-8-sig")
    assert _read(str(array)) == [request_] * 2
    if request_.output_len != 7:
        assert _read(str(array), 1, output_len=9) == [Request(request_.prompt, 9)]


def test_records_that_cannot_be_used_are_skipped(tmp_path: Path) -> None:
    begun_by_model = {"conversations": _TURNS[1:]}
    nothing: dict[str, Any] = {"conversations": []}
    path = _file(tmp_path, begun_by_model, nothing, {"conversations": _TURNS}, {"prompt": "a"})
    assert _read(path, 1) == [Request("why blue", 3)]
    assert _read(path, 9, max_request_len=4, output_len=3) == [Request("a", 3)]
    with pytest.raises(ConfigError, match="no requests that can be used"):
        _read(path, max_request_len=4)


def test_arrays_are_read_entry_by_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cut.json"
    whole = json.dumps([{"prompt": f"schön {i}"} for i in range(200)], ensure_ascii=False)
    path.write_text(whole[:-30])  # the last entries are missing
    monkeypatch.setattr(dataset_records, "_CHUNK_BYTES", 16)
    assert [each.prompt for each in _read(str(path), 150)] == [f"schön {i}" for i in range(150)]
    with pytest.raises(ConfigError, match="entry 199: it is not JSON"):
        _read(str(path), 200)
    monkeypatch.setattr(dataset_records, "MAX_RECORD_BYTES", 100)
    path.write_text(json.dumps([{"prompt": "a" * 200}]))
    with pytest.raises(ConfigError, match="entry 1: .*longer than"):
        _read(str(path), 1)


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('\ufeffid,question,answer\n1,"a,\nb",c d\n2,e\n')
    assert _read(str(path)) == [Request("a,\nb", 2), Request("e", 128)]


def test_lines_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("\n".join(f"line {i} has five words" for i in range(40)) + "\n\n")
    requests = _read(str(path), 5, input_len=53, prefix_len=28, output_len=7)
    assert {each.output_len for each in requests} == {7}
    lines = [str(each.prompt).splitlines()[1:] for each in requests]
    assert {len(each) for each in lines} == {10}
    assert {tuple(each[:5]) for each in lines} == {
        tuple(f"line {i} has five words" for i in range(5))
    }
    assert len({tuple(each) for each in lines}) == 5
    path.write_text("\n")
    with pytest.raises(ConfigError, match="no lines"):
        _read(str(path))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "it is not JSON"),
        ("[" * 10**5, "it is not JSON"),
        ("7", "expected an object with a text"),
        ('{"prompt": ""}', "expected an object with a text"),
        ('{"prompt": {}}', "expected an object with a text"),
        ('{"prompt": "a", "max_tokens": 0}', '"max_tokens" is not an integer'),
        ('{"prompt": "a", "max_tokens": true}', '"max_tokens" is not an integer'),
        (json.dumps({"prompt": "a" * 2**20}), "longer than 1 MiB"),
    ],
)
def test_bad_lines_are_named(line: str, words: str, tmp_path: Path) -> None:
    path = _file(tmp_path, {"prompt": "a"}, "", line)
    with pytest.raises(ConfigError, match=rf"--dataset .*prompts\.jsonl, line 3: {words}"):
        _read(path, 5)


def test_files_without_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="it has no requests"):
        _read(_file(tmp_path, ""))
    with pytest.raises(ConfigError, match="No such file"):
        _read(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="Parquet is not read.*lines of JSON"):
        _read(_file(tmp_path, "PAR1..."))
    monkeypatch.setattr(dataset_records, "MAX_BYTES", 40)
    with pytest.raises(ConfigError, match="line 3: more than 1 GiB"):
        _read(_file(tmp_path, *[{"prompt": "a"}] * 9))


def test_warm_ups_are_the_records_after_those_measured(tmp_path: Path) -> None:
    path = _file(tmp_path, *[{"prompt": str(i)} for i in range(4)])

    def prompts(num_prompts: int) -> tuple[list[object], list[object]]:
        config = LoadConfig(
            prompts=PromptConfig(dataset=path), num_prompts=num_prompts, num_warmups=2
        )
        warmups, measured = requests_of(config, _words)
        return [each.prompt for each in warmups], [each.prompt for each in measured]

    assert prompts(1) == (["1", "2"], ["0"])
    assert prompts(3) == (["3"], ["0", "1", "2"])
    assert prompts(9) == ([], ["0", "1", "2", "3"])


def test_some_routes_need_texts() -> None:
    for route in ("/v1/chat/completions", "/v1/responses"):
        with pytest.raises(ConfigError, match=f"{route} needs --dataset"):
            LoadConfig(endpoint=route)
    with pytest.raises(ConfigError, match="--endpoint"):
        LoadConfig(endpoint="/v1/images")


def test_random_lengths_lie_in_their_range() -> None:
    config = PromptConfig(input_len=100, output_len=10, range_ratio=0.5)
    requests = random_requests(config, 200, _IDS, run="a")
    sizes = {len(each.prompt) for each in requests}
    assert 50 <= min(sizes) < 60 and 140 < max(sizes) <= 150
    assert {each.output_len for each in requests} == set(range(5, 16))
    assert requests == random_requests(config, 200, _IDS, run="a")
    assert requests != random_requests(config, 200, _IDS, run="b")
    equal = PromptConfig(input_len=100, output_len=10)
    assert {
        (len(each.prompt), each.output_len) for each in random_requests(equal, 5, _IDS, run="a")
    } == {(100, 10)}


def test_prefixes_take_turns() -> None:
    config = PromptConfig(input_len=12, prefix_len=8, num_prefixes=3)
    requests = random_requests(config, 9, _IDS, run="a")
    prefixes = [tuple(each.prompt[:8]) for each in requests]
    assert len(set(prefixes)) == 3 and prefixes[:3] * 3 == prefixes
    assert len({tuple(each.prompt) for each in requests}) == 9
    assert distinct_prompt_tokens(requests, 8) == 3 * 8 + 9 * 4
    again = random_requests(config, 3, _IDS, run="b")
    assert [tuple(each.prompt[:8]) for each in again] == prefixes[:3]
    apart = random_requests(config, 3, _IDS, run="b", prefix_run="b")
    assert not set(prefixes) & {tuple(each.prompt[:8]) for each in apart}
