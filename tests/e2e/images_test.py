"""Images over HTTP: a server answers as the offline model does with the same pixels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.engine.llm import LLM
from pagemill.engine.sampling import SamplingParams
from pagemill.observe.readings import Counter, Gauge

from tests.e2e.image_servers import (
    CAT,
    DOG,
    IMAGE,
    MAX_TOKENS,
    OPTIONS,
    SETTINGS,
    Served,
    base64_of,
    part_of,
    picture,
    save_files,
    url,
)
from tests.e2e.server_process import NAME, serve
from tests.media.qwen_vl_models import MAKERS, make_image_model
from tests.media.tiny_tiled_models import llava_onevision
from tests.parity.tiny_models import (
    make,
    save,
)


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    family: str = request.param
    path = tmp_path_factory.mktemp(family)
    if family in MAKERS:
        make_image_model(family, path)
    elif family == "llava_onevision":
        save(llava_onevision(), path)
    else:
        make(family, path)
    save_files(family, path)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    if family == "llava":
        options.append("--isolate-engine")  # pixels cross a socket
    options += ['--limit-mm-per-prompt={"image": 3}', "--max-image-pixels=10000"]
    with serve(str(path), tmp_path_factory.mktemp("log"), options) as server:
        yield Served(family, path, server)


def test_answers_are_those_of_the_offline_model(served: Served) -> None:
    one, two, none = served.answers(
        (f"t20 t50 t51 {IMAGE} t21 t22", [CAT]),
        (f"t20 {IMAGE} t60 {IMAGE} t21 t22", [DOG, CAT]),
        ("t20 t50 t21 t22", []),
    )
    assert one != none
    for content, expected in (
        (["t50 t51", CAT], one),
        ([DOG, "t60", CAT], two),
        (["t50"], none),
    ):
        answer = served.chat(*content)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"] == expected

    message = {"role": "user", "content": [{"type": "input_text", "text": "t50 t51"}]}
    message["content"].append({"type": "input_image", "image_url": url(CAT), "detail": "auto"})
    sampling = {"temperature": 0, "ignore_eos": True, "max_output_tokens": MAX_TOKENS}
    response = served.post("/v1/responses", model=NAME, input=[message], **sampling)
    assert response.status_code == 200, response.text
    assert response.json()["output"][0]["content"][0]["text"] == one

    source = {"type": "base64", "media_type": "image/png", "data": base64_of(CAT)}
    blocks = [{"type": "text", "text": "t50 t51"}, {"type": "image", "source": source}]
    body = {"model": NAME, "messages": [{"role": "user", "content": blocks}]}
    reply = served.post("/v1/messages", **body, temperature=0, max_tokens=MAX_TOKENS)
    assert reply.status_code == 200, reply.text
    assert one.startswith(reply.json()["content"][0]["text"])
    usage = reply.json()["usage"]
    count = served.post("/v1/messages/count_tokens", **body).json()["input_tokens"]
    assert count == usage["input_tokens"] + usage["cache_read_input_tokens"] > 10


def test_named_images_are_sent_once(served: Served) -> None:
    def count(what: str) -> float:
        return served.server.metric(f"mm_cache_{what}_total")

    part = {"type": "image_url", "image_url": {"url": url(CAT)}, "uuid": "cat"}
    first = served.chat("t50 t51", part)
    queries, hits = count("queries"), count("hits")
    again = served.chat("t50 t51", {"type": "image_url", "image_url": None, "uuid": "cat"})
    assert again.status_code == 200, again.text
    assert again.json()["choices"][0]["message"] == first.json()["choices"][0]["message"]
    assert (count("queries") - queries, count("hits") - hits) == (1, 1)
    refused = served.chat({"type": "image_url", "uuid": "dog"})
    assert refused.status_code == 400 and "send the image again" in refused.text
    other = {"type": "image_url", "uuid": "cat"}
    refused = served.chat(other, cache_salt="of another owner")
    assert refused.status_code == 400, refused.text


def test_embeddings_of_images_are_kept_until_they_are_forgotten(served: Served) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=1)
    with LLM(str(served.path), enable_prefix_caching=False, **OPTIONS) as llm:

        def reading(name: str) -> float:
            (found,) = [each for each in llm.get_metrics() if each.name.endswith(name)]
            assert isinstance(found, Counter | Gauge)
            return found.value

        def looked_up() -> tuple[float, float]:
            """Items that an image takes, and how many of them were there."""
            names = ("encoder_cache_queries", "encoder_cache_hits")
            before = [reading(name) for name in names]
            llm.generate([f"t50 {IMAGE}"], sampling, images=[[CAT]])
            items, found = (reading(name) - old for name, old in zip(names, before, strict=True))
            return items, found

        items, equal = looked_up()  # tiles may be equal
        assert 0 <= equal < items
        assert looked_up() == (items, items)
        assert 0 < reading("encoder_cache_tokens_used") <= reading("encoder_cache_tokens_total")
        llm.reset_encoder_cache()
        assert reading("encoder_cache_tokens_used") == 0
        assert looked_up() == (items, equal)


def test_offline_images_are_read_as_the_servers(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "dog.png"
    DOG.save(path)
    expected = served.chat("t50", DOG, "t51", CAT).json()["choices"][0]["message"]["content"]
    text = f"t20 t50 {IMAGE} t51 {IMAGE} t21 t22"
    content = [{"type": "text", "text": "t50"}, {"type": "image", "image": path}, part_of("t51")]
    messages = [{"role": "user", "content": [*content, part_of(CAT)]}]
    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
    with LLM(str(served.path), **OPTIONS) as llm:
        outputs = llm.generate([text, text], sampling, images=[[path, CAT], [str(path), url(CAT)]])
        outputs += llm.chat(messages, sampling)
        streamed = "".join(llm.stream_chat(messages, sampling))
    assert [output.choices[0].text for output in outputs] == [expected] * 3
    assert streamed == expected


def test_stored_responses_keep_their_images(served: Served) -> None:
    image = {"type": "input_image", "image_url": url(CAT)}
    sampling = {"temperature": 0, "max_output_tokens": 2, "ignore_eos": True}
    first = served.post(
        "/v1/responses", input=[{"role": "user", "content": [image]}], **sampling
    ).json()
    second = served.post(
        "/v1/responses", input="t70", previous_response_id=first["id"], **sampling
    ).json()
    assert second["status"] == "incomplete", second
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    items_url = f"{served.server.base_url}/v1/responses/{second['id']}/input_items"
    items = httpx.get(items_url, timeout=60).json()
    assert image in [part for item in items["data"] for part in item["content"]]


def test_prefix_cache_keeps_images_apart(served: Served) -> None:
    words = " ".join(f"t{100 + i}" for i in range(40))
    cached = []
    for image in (CAT, DOG, CAT):
        usage = served.chat(image.resize((24, 24)), words).json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached[1] == 0 < cached[2]


def test_users_text_is_no_image(served: Served) -> None:
    """The placeholder in a message is text."""
    answer = served.chat(f"t50 {IMAGE} t51")
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([{"type": "image_url", "image_url": {"url": "data:,x"}}], "content[0]` cannot be read"),
        ([{"type": "image_url", "image_url": {"url": "data:;base64,eHg="}}], "cannot be decoded"),
        (["t5", picture(1, 200, 51)], "200 x 51 pixels; at most 10000"),
        ([CAT] * 4, "has 4 images; at most 3"),
        ([{"type": "image_url", "image_url": {}}], "image_url` must be"),
        (
            [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x"}}],
            "--allowed-media-domains",
        ),
        ([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "begin with"),
        ([{"type": "video", "video": {"url": "data:,"}}], "parts are of type `text`"),
    ],
)
def test_refusals(served: Served, content: list[Any], why: str) -> None:
    answer = served.chat(*content)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert why in error["message"] and error["param"] == "messages"


def test_images_are_no_tokens(served: Served) -> None:
    message = {"role": "user", "content": [part_of(CAT)]}
    answer = served.post("/v1/chat/completions/render", model=NAME, messages=[message])
    assert answer.status_code == 400 and "cannot be rendered" in answer.text
