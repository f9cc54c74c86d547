"""Images in scores, ranks and Cohere's embeddings: what the chat template gets, and what is
refused."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.config import MediaConfig
from pagemill.engine.testing.fake_model import FakeOptions, pooled_row
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt
from pagemill.inputs.task import Pooled, Task
from pagemill.render.media.decode import ImageLimits
from pagemill.render.media.image_files import ImageFiles
from pagemill.render.media.media_files import MediaFiles
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.media import MediaReader
from pagemill.server.media_work import MediaBudget
from pagemill.server.pipeline import Pipeline
from pagemill.server.pooling import contents
from pagemill.server.records.record import RequestRecord
from pagemill.server.testing.fake_server import FakeServer, fake_server

SIZE = 5
PAIRS = "{{ messages | selectattr('role', 'eq', 'query') }} 'document'"
IMAGE = {"type": "image"}


def url(width: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, 2)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def part(width: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url(width)}}


def content(*parts: str | int) -> dict[str, Any]:
    """A query or a document of texts, and images of these widths."""
    return {
        "content": [
            {"type": "text", "text": each} if isinstance(each, str) else part(each)
            for each in parts
        ]
    }


class Images:
    """Records the widths of images that are read, and the requests that have ended."""

    def __init__(self, config: MediaConfig) -> None:
        self.read: list[int] = []
        self.records: list[RequestRecord] = []
        limits = ImageLimits(config.max_image_bytes, config.max_image_pixels)
        files: dict[MediaKind, MediaFiles] = {
            "image": ImageFiles(limits, self._prepare, config.background)
        }
        self.reader = MediaReader(config, files, self._place)

    def _prepare(self, image: Image.Image) -> np.ndarray:
        self.read.append(image.width)
        return np.full((3, 1, 1), image.width, np.float32)

    def _place(self, prompt: RenderedPrompt, media: Sequence[PreparedMedia]) -> RenderedPrompt:
        features = [MediaFeatures(each.values.reshape(1, -1), 1) for each in media]
        items = (MediaItem(f"{at}", at, each) for at, each in enumerate(features))
        return RenderedPrompt(prompt.token_ids, tuple(items))


def run(
    body: Callable[[FakeServer, Pipeline, Images], Awaitable[None]],
    task: Task,
    template: str | None = None,
    **config: Any,
) -> None:
    size = 1 if task.classifies else SIZE

    async def main() -> None:
        options, images = FakeOptions(pooled_size=size, task=task), Images(MediaConfig(**config))
        listeners = [images.records.append]
        async with fake_server(options, max_model_len=2000, listeners=listeners) as server:
            pipeline = server.state.models.resolve(None, ANONYMOUS).model
            labels = ("L",) if task.classifies else ()
            pooled = Pooled(task=task, width=size, labels=labels)
            pipeline.model = replace(pipeline.model, pooled=pooled)
            server.renderer.chat_template = template
            pipeline.rendering.media = images.reader
            await body(server, pipeline, images)

    asyncio.run(main())


async def post(server: FakeServer, path: str, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post(path, json=fields)
    assert response.status_code == status, response.text
    return response.json()


async def refused(server: FakeServer, path: str, param: str, **fields: Any) -> str:
    error = (await post(server, path, 400, **fields))["error"]
    assert error["param"] == param, error
    return error["message"]


def rendered(server: FakeServer) -> list[list[tuple[str, Any]]]:
    """The messages of each prompt so far: roles and contents. They are rendered at once, so their
    order says nothing."""
    found = [
        [(message["role"], message["content"]) for message in each.messages]
        for each in server.renderer.rendered
    ]
    server.renderer.rendered.clear()
    return sorted(found, key=str)


def row(text: str, size: int = SIZE) -> np.ndarray:
    return pooled_row(FakeOptions(pooled_size=size, task=Task.EMBED), list(text.encode()))


def test_a_template_for_pairs_writes_parts() -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        documents = [content(3), "b", content("c", 4)]
        got = await post(server, "/rerank", query=content("a", 9), documents=documents)
        text = [{"type": "text", "text": "a"}, IMAGE]
        assert rendered(server) == [
            [("query", text), ("document", "b")],
            [("query", text), ("document", [IMAGE])],
            [("query", text), ("document", [{"type": "text", "text": "c"}, IMAGE])],
        ]
        # The query's image is read once for all documents.
        assert images.read.count(9) == 1 and set(images.read) == {9, 3, 4}
        shown = {each["index"]: each["document"] for each in got["results"]}
        assert shown == {
            0: {"multi_modal": documents[0]["content"]},  # type: ignore[index]
            1: {"text": "b"},
            2: {"multi_modal": documents[2]["content"]},  # type: ignore[index]
        }

    run(body, Task.CLASSIFY, PAIRS, mm_processor_cache_gb=0.0)


def test_vectors_of_chats_are_compared() -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        got = await post(server, "/score", queries="a", documents=[content(3), "b"])
        assert rendered(server) == [[("user", "a")], [("user", "b")], [("user", [IMAGE])]]
        query, document = row("user:a\nassistant:"), row("user:b\nassistant:")
        cosine = float(query @ document / np.linalg.norm(query) / np.linalg.norm(document))
        assert got["data"][1]["score"] == pytest.approx(cosine, rel=1e-5)
        await post(server, "/score", queries="a", documents=["b"])
        assert rendered(server) == [], "texts alone are read as they are"
        variables = {"chat_template_kwargs": {"a": 1}}
        await refused(
            server, "/score", "chat_template_kwargs", queries="a", documents="b", **variables
        )
        await post(server, "/score", queries="a", documents=content(3), **variables)
        assert [each.template_kwargs for each in server.renderer.rendered] == [{"a": 1}] * 2

    run(body, Task.EMBED)


@pytest.mark.parametrize("task", [Task.EMBED, Task.TOKEN_EMBED])
def test_a_template_for_pairs_writes_each_alone(task: Task) -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        await post(server, "/score", queries=["abc"], documents=["defg"], max_tokens_per_doc=2)
        assert rendered(server) == [[("document", "de")], [("query", "abc")]]
        await refused(server, "/score", "instruction", queries="a", items="b", instruction="c")
        fields = {"queries": "a", "items": "b", "chat_template_kwargs": {"chat_template": "c"}}
        await refused(server, "/score", "chat_template_kwargs", **fields)

    run(body, task, PAIRS)


def test_prompts_with_media_are_pooled_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        sizes: list[int] = []
        pool = pipeline.pool_each

        async def counted(prompts: Sequence[RenderedPrompt], *rest: Any) -> int:
            sizes.append(len(prompts))
            return await pool(prompts, *rest)

        monkeypatch.setattr(pipeline, "pool_each", counted)
        documents = [content(width) for width in range(1, 20)]
        got = await post(server, "/score", queries="a", documents=documents)
        assert sizes == [1, 8, 8, 3]
        assert [each["index"] for each in got["data"]] == list(range(19))
        assert images.records[0].work.prompt_tokens == got["usage"]["prompt_tokens"]
        sizes.clear()
        texts = [content("b")] * 19
        await post(server, "/score", queries="a", documents=texts)
        assert sizes == [1, 19]

    run(body, Task.EMBED)


def test_all_media_of_a_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one that is read, and each prompt that media are placed in, takes a second here."""

    def budget() -> MediaBudget:
        seconds = itertools.count()
        return MediaBudget(lambda: float(next(seconds)))

    monkeypatch.setattr(contents, "MediaBudget", budget)

    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        def read(number: int) -> dict[str, Any]:
            return {"documents": [content(3)] * number}

        await post(server, "/score", queries="a", **read(20))
        images.read.clear()
        why = await refused(server, "/score", "documents", queries="a", **read(200))
        assert "more than 60 s of processor time" in why and "`documents[" in why
        assert len(images.read) < 60
        # A query is read once, and placed in the prompt of each document.
        images.read.clear()
        await post(server, "/score", queries="a", documents=["b"] * 100)
        assert images.read == []

    run(body, Task.EMBED, mm_processor_cache_gb=0.0)

    async def pairs(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        await post(server, "/rerank", query=content("a", 9), documents=["b"] * 40)
        fields: dict[str, Any] = {"query": content("a", 9), "documents": ["b"] * 400}
        response = await server.client.post("/rerank", json=fields)
        assert response.status_code == 400
        assert "more than 60 s of processor time" in response.json()["error"]["message"]
        assert images.read == [9, 9]

    run(pairs, Task.CLASSIFY, PAIRS, mm_processor_cache_gb=0.0)


def test_refusals_name_fields() -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        async def message(param: str, *documents: Any, **fields: Any) -> str:
            query = {"query": content(1)} | fields
            return await refused(server, "/rerank", param, documents=list(documents), **query)

        bad = {"content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}
        assert "`documents[1].content[0]` cannot be read" in await message("documents", "a", bad)
        assert "`query.content[0]` cannot be read" in await message("query", "a", query=bad)
        other = {"content": [{"type": "picture"}]}
        assert "`documents[1].content[0].type`" in await message("documents", "a", other)
        many = content(1, 2, 3)
        assert "`documents[1]` has 3 images; at most 2" in await message("documents", "a", many)
        audio = {"content": [{"type": "audio_url", "audio_url": {"url": "data:,"}}]}
        assert "takes image" in await message("documents", audio)
        for neither in ({}, {"text": "a", **content("b")}):
            assert "either `text` or `content`" in await message("documents", neither)
        assert "cuts texts" in await message("max_tokens_per_query", "a", max_tokens_per_query=3)
        assert "cuts texts" in await message(
            "max_tokens_per_doc", content(1), query="a", max_tokens_per_doc=3
        )
        await message("truncate_prompt_tokens", "a", truncate_prompt_tokens=9)
        await message("documents", {"content": []})
        await message("mm_processor_kwargs", "a", mm_processor_kwargs={"max_pixels": 9})

    run(body, Task.CLASSIFY, PAIRS, limit_mm_per_prompt={"image": 2})


def test_a_cross_encoder_without_a_template_reads_texts() -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        fields = {"queries": "a", "documents": content(1)}
        assert "need a chat template for pairs" in await refused(
            server, "/score", "documents", **fields
        )
        await post(server, "/score", queries={"text": "a"}, documents=[{"text": "b"}])

    run(body, Task.CLASSIFY)


def test_coheres_images() -> None:
    async def body(server: FakeServer, pipeline: Pipeline, images: Images) -> None:
        got = await post(server, "/v2/embed", images=[url(3), url(4)], input_type="image")
        assert rendered(server) == [[("user", [IMAGE])]] * 2
        assert len(got["embeddings"]["float"]) == 2 and got["texts"] == []
        mixed = [content("a", 3), content("b")]
        got = await post(server, "/v2/embed", inputs=mixed)
        parts = [{"type": "text", "text": "a"}, IMAGE]
        assert rendered(server) == [
            [("user", parts)],
            [("user", [{"type": "text", "text": "b"}])],
        ]
        assert got["texts"] == ["a", "b"]
        for fields, named in (
            ({"images": [url(3)], "max_tokens": 5}, "max_tokens"),
            ({"images": [url(3)], "texts": ["a"]}, "`texts` and `images`"),
            ({"images": ["ftp://x"]}, "images[0].content[0]"),
            ({"inputs": [{"content": [{"type": "text"}]}]}, "inputs[0].content[0].text"),
        ):
            assert named in (await post(server, "/v2/embed", 400, **fields))["message"]

    run(body, Task.EMBED)
