"""Encoders in processes of their own: a language server that has none answers as one process with
both does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pagemill.engine.reserved_port import reserved_port
from pagemill.weights.sent_tensor import SentTensor
from safetensors.numpy import save as safetensors

from tests.e2e.image_servers import CAT, DOG, OPTIONS, Served, part_of, save_files
from tests.e2e.server_process import NAME, serve
from tests.media.qwen_vl_models import make_image_model
from tests.parity.tiny_models import make

FAMILIES = ("llava", "qwen3_vl")  # rows alone; rows of several layers, and grids
ARGUMENTS = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
CHATS: list[list[Any]] = [["t50 t51", CAT], [DOG, "t60", CAT], [CAT, CAT, "t70"], ["t50"]]


@pytest.fixture(scope="module", name="path", params=FAMILIES)
def _path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    if request.param == "llava":
        make("llava", path)
    else:
        make_image_model(request.param, path)
    save_files(request.param, path)
    return path


@pytest.fixture(scope="module", name="encoders")
def _encoders(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    options = [*ARGUMENTS, "--mm-encoder-only"]
    with serve(str(path), tmp_path_factory.mktemp("encoders"), options) as server:
        yield Served(path.name, path, server)


@pytest.fixture(name="dead")
def _dead() -> Iterator[str]:
    """The URL of no server."""
    with reserved_port() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module", name="expected")
def _expected(path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What one process answers to each of CHATS."""
    with serve(str(path), tmp_path_factory.mktemp("whole"), ARGUMENTS) as server:
        whole = Served(path.name, path, server)
        return [said(whole, *chat) for chat in CHATS]


def said(served: Served, *content: Any) -> Any:
    """The answer to a chat, its log probabilities, and the tokens of its prompt."""
    answer = served.chat(*content, logprobs=True)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    return choice["message"], choice["logprobs"], answer.json()["usage"]["prompt_tokens"]


def encoded(encoders: Served, *images: Any) -> list[dict[str, Any]]:
    """Parts with the embeddings of images."""
    answer = encoders.post("/v1/media/embeddings", input=[part_of(each) for each in images])
    assert answer.status_code == 200, answer.text
    return [each["part"] for each in answer.json()["data"]]


def test_embeddings_of_one_server_are_read_by_another(
    path: Path, encoders: Served, expected: list[Any], tmp_path: Path
) -> None:
    cat, dog = encoded(encoders, CAT, DOG)
    parts = {id(CAT): cat, id(DOG): dog}
    options = [*ARGUMENTS, "--enable-mm-embeds", "--language-model-only"]
    with serve(str(path), tmp_path, options) as server:
        served = Served(path.name, path, server)
        for chat, answer in zip(CHATS, expected, strict=True):
            assert said(served, *(parts.get(id(each), each) for each in chat)) == answer
        check_refusals(served, cat)


def check_refusals(served: Served, part: dict[str, Any]) -> None:
    given: dict[str, Any] = part["image_embeds"]
    text = given["image_embeds"]
    rows = SentTensor.read(base64.b64decode(text)).as_f32()

    def tensor(values: np.ndarray) -> str:
        return base64.b64encode(safetensors({"rows": values})).decode()

    def embeds(value: Any) -> dict[str, Any]:
        return {"type": "image_embeds", "image_embeds": value}

    with_rows = [given | {"image_embeds": tensor(each)} for each in (rows[:-1], rows * np.nan)]
    for refused, why in (
        (CAT, "no encoder of media (--language-model-only)"),
        (embeds(None), "image_embeds` must be base64 of a tensor"),
        (embeds({"image_embeds": text, "size": 5}), "image_embeds` must be base64 of a tensor"),
        (embeds({"shape": [3]}), "image_embeds` must be base64 of a tensor"),
        (embeds("%"), "content[0]` cannot be read: it is not base64"),
        (embeds("abcd"), "content[0]` cannot be read: "),
        (embeds(tensor(rows[:, :5])), "this model takes [rows, "),
        (embeds(tensor(rows[0])), "this model takes [rows, "),
        (embeds(tensor(rows[:0])), "this model takes [rows, "),
        (embeds(tensor(rows.astype(np.int32))), "known: f32, bf16, f16"),
        (embeds(with_rows[0]), f"there are {len(rows) - 1} rows of embeddings; media of this"),
        (embeds(with_rows[1]), "embeddings that are not finite"),
        (embeds(given | {"shape": [2**20, 2**20]}), "are too large"),
        (embeds(given | {"shape": [True]}), "`shape` must be 1 to 4 positive numbers"),
        (embeds(given | {"image_grid_thw": "1"}), "`image_grid_thw` must be 3 positive numbers"),
        (part | {"uuid": "cat"}, "names files"),
        ({"type": "audio_embeds", "audio_embeds": text}, "takes no audios"),
    ):
        answer = served.chat(refused)
        assert answer.status_code == 400 and why in answer.json()["error"]["message"], answer.text
    assert served.chat(*[part] * 17).status_code == 400


def test_a_language_server_asks_encoders(
    path: Path, encoders: Served, expected: list[Any], dead: str, tmp_path: Path
) -> None:
    """One of its two encoders is not there: files that are for it go to the other one."""
    urls = f"--encoder-urls={encoders.server.base_url},{dead}"
    with serve(str(path), tmp_path, [*ARGUMENTS, urls]) as server:
        served = Served(path.name, path, server)

        def completed() -> float:
            """Files that were encoded."""
            name, labels = "encoder_requests_total", {"outcome": "completed"}
            return server.metric(name, server=encoders.server.base_url, **labels)

        answers = [said(served, *chat) for chat in CHATS]
        assert answers == expected and completed() == 2, "CAT and DOG are sent once each"
        again = said(served, *CHATS[1])
        assert again == expected[1] and completed() == 2
        small = served.chat({"type": "image_url", "image_url": {"url": "data:;base64,eHg="}})
        assert small.status_code == 400 and "cannot be decoded" in small.text
        given = served.chat({"type": "image_embeds", "image_embeds": "eHg="})
        assert given.status_code == 400 and "--enable-mm-embeds" in given.text
    with serve(str(path), tmp_path, [*ARGUMENTS, f"--encoder-urls={dead}"]) as server:
        served = Served(path.name, path, server)
        failed = served.chat(CAT)
        assert failed.status_code == 503 and "(--encoder-urls); send the request" in failed.text
        assert failed.headers["retry-after"]
        assert said(served, "t50") == expected[3]
        assert server.metric("encoder_requests_total", server=dead, outcome="failed") == 1


def test_the_route_of_encoders(encoders: Served) -> None:
    def post(**body: Any) -> httpx.Response:
        return encoders.post("/v1/media/embeddings", **body)

    for sent, why in (
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["text"]}, "input"),
        ({"input": [{"type": "text", "text": "a"}]}, "`input[0]` must be a part"),
        ({"input": [part_of(CAT), {"type": "text"}]}, "`input[1]` must be a part"),
        ({"input": [{"type": "image_url", "image_url": "data:,x"}]}, "`input[0]` cannot be read"),
        ({"input": [part_of(CAT)] * 17}, "`input` has 17 images; at most 16"),
        ({"input": encoded(encoders, CAT)}, "`input[0]` has embeddings already"),
        ({"input": [{"type": "video_url", "video_url": "data:,x"}]}, "`input[0]` has a video"),
    ):
        answer = post(**sent)
        assert answer.status_code == 400 and why in answer.json()["error"]["message"], answer.text
        assert answer.json()["error"]["param"] == "input"
    answer = post(input=[part_of(CAT)], model=NAME)
    body = answer.json()
    given = body["data"][0]["part"]["image_embeds"]
    rows = SentTensor.read(base64.b64decode(given["image_embeds"]))
    assert body["usage"] == {"prompt_tokens": rows.shape[0], "total_tokens": rows.shape[0]}
    text = encoders.chat("t50")
    assert text.status_code == 404 and "encodes media" in text.text
