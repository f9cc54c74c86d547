"""Vectors, scores and ranks of images over HTTP and offline are those of `transformers`."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from pagemill.engine.llm import LLM
from pagemill.inputs.scoring import activated, likeness
from pagemill.inputs.task import Pooled, Task
from PIL import Image
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tests.e2e.server_process import serve
from tests.media import siglip_models
from tests.media.media_model import MediaTestModel
from tests.media.pooling_models import PIXELS, PLACEHOLDER, WIDTH, clip, colqwen2, qwen_vl

# Both sides compute in f32.
TOLERANCE = 1e-4
START, END, PAD, VIDEO, TEXT_END = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|endoftext|>",
)
IMAGE = f"{START}{PAD}{END}"
WORDS = {PLACEHOLDER: PAD, 4: VIDEO, 5: START, 6: END, 7: TEXT_END}
SETTINGS = {"patch_size": 4, "min_pixels": 256, "max_pixels": 4096}
OPTIONS = {
    "max_model_len": 300,
    "max_num_batched_tokens": 128,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
CHAT = (
    "{% for message in messages %}t20 {% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    + IMAGE
    + "{% else %} {{ part['text'] }} {% endif %}{% endfor %}{% endif %} t21 {% endfor %}"
    "{% if add_generation_prompt %}t22{% endif %}"
)
# Contents are texts, as templates of rerankers have them.
PAIRS = (
    "t20 {{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first"
    " | default('t23') }} {{ messages | selectattr('role', 'eq', 'query')"
    " | map(attribute='content') | first }} t24 {{ messages | selectattr('role', 'eq', 'document')"
    " | map(attribute='content') | first }} t21"
)
QUERY = "t50 t51"


def picture(seed: int, width: int, height: int) -> Image.Image:
    """Noise."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


CAT, DOG = picture(1, 40, 30), picture(2, 20, 50)


def url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def content(*parts: str | Image.Image) -> dict[str, Any]:
    """A query or a document of texts and images."""
    return {
        "content": [
            {"type": "text", "text": each}
            if isinstance(each, str)
            else {"type": "image_url", "image_url": {"url": url(each)}}
            for each in parts
        ]
    }


@dataclass(frozen=True)
class Served:
    """A running server of a model, with which options an `LLM` is the same."""

    model: MediaTestModel
    url: str
    tokenizer: Tokenizer
    options: dict[str, Any]

    def post(self, path: str, **fields: Any) -> Any:
        response = httpx.post(f"{self.url}{path}", json=fields, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    def rows(self, prompt: str, *images: Image.Image) -> np.ndarray:
        """The reference's rows of a prompt with a placeholder for each image."""
        processor = Qwen2VLImageProcessorPil(**SETTINGS)
        found = [processor(image, return_tensors="np") for image in images]
        patches = [(each["pixel_values"], tuple(each["image_grid_thw"][0])) for each in found]
        for values, _ in patches:
            prompt = prompt.replace(PAD, "<|>" * (len(values) // 4), 1)
        ids = self.tokenizer.encode(prompt.replace("<|>", PAD)).ids
        return self.model.reference(ids, patches).numpy()

    @contextlib.contextmanager
    def offline(self) -> Iterator[LLM]:
        with LLM(str(self.model.path), **self.options, pack_cache=False) as llm:
            yield llm


@contextlib.contextmanager
def served(
    model: MediaTestModel,
    log: Path,
    template: str,
    processor: dict[str, Any] | None = None,
    **changes: Any,
) -> Iterator[Served]:
    """`processor`: the settings of the image processor, if it is not Qwen2-VL's."""
    vocab = {WORDS.get(i, f"t{i}"): i for i in range(257)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(list(WORDS.values()))
    tokenizer.save(str(model.path / "tokenizer.json"))
    roles = {"pad_token": TEXT_END, "bos_token": START, "eos_token": END}
    (model.path / "tokenizer_config.json").write_text(json.dumps(roles))
    (model.path / "chat_template.jinja").write_text(template)
    settings = processor or SETTINGS | {"image_processor_type": "Qwen2VLImageProcessor"}
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    options: dict[str, Any] = OPTIONS | changes
    flags = [
        f"--{name.replace('_', '-')}={json.dumps(value) if isinstance(value, dict) else value}"
        for name, value in options.items()
    ]
    with serve(str(model.path), log, flags) as server:
        yield Served(model, server.base_url, tokenizer, options)


def normalized(row: np.ndarray) -> np.ndarray:
    return row / np.linalg.norm(row, axis=-1, keepdims=True)


def test_vectors(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("log")
    with served(qwen_vl("qwen3_vl", tmp_path), log, CHAT, task="embed") as server:
        seen = normalized(server.rows(f"t20 t50 {IMAGE} t21 t22", CAT)[-1])
        cat = normalized(server.rows(f"t20 {IMAGE} t21 t22", CAT)[-1])
        dog = normalized(server.rows(f"t20 {IMAGE} t21 t22", DOG)[-1])
        text = normalized(server.rows(f"t20 {QUERY} t21 t22")[-1])

        def check(found: Any, *expected: np.ndarray) -> None:
            np.testing.assert_allclose(found, np.stack(expected), rtol=0, atol=TOLERANCE)

        messages = [{"role": "user", **content("t50", CAT)}]
        got = server.post("/v1/embeddings", messages=messages, add_generation_prompt=True)
        check([got["data"][0]["embedding"]], seen)
        got = server.post("/pooling", messages=messages, add_generation_prompt=True)
        check([got["data"][0]["data"]], seen)
        got = server.post("/v2/embed", images=[url(DOG), url(CAT)], input_type="image")
        check(got["embeddings"]["float"], dog, cat)
        got = server.post("/v2/embed", inputs=[content("t50", CAT), content(QUERY)])
        check(got["embeddings"]["float"], seen, text)
        got = server.post("/score", queries=QUERY, documents=[content(DOG), content("t50", CAT)])
        check([each["score"] for each in got["data"]], text @ dog, text @ seen)
        with server.offline() as llm:
            check(llm.embed([content("t50", CAT), content(DOG)]), seen, dog)
            check(llm.embed(f"t20 t50 {IMAGE} t21 t22", images=[[CAT]]), seen)
            check(llm.score(QUERY, [content(DOG), content("t50", CAT)]), text @ dog, text @ seen)


def test_a_reranker(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    overrides = {
        "architectures": ["Qwen3VLForSequenceClassification"],
        "classifier_from_token": ["t30", "t31"],
        "is_original_qwen3_reranker": True,
    }
    log, model = tmp_path_factory.mktemp("log"), qwen_vl("qwen3_vl", tmp_path)
    head = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    with served(model, log, PAIRS, hf_overrides=overrides) as server:

        def expected(prompt: str, *images: Image.Image) -> float:
            no, yes = torch.tensor(server.rows(prompt, *images)[-1]) @ head[[30, 31]].T
            return float(activated(np.array(float(yes - no)), "sigmoid"))

        scores = [
            expected(f"t20 t23 {QUERY} t24 {IMAGE} t21", CAT),
            expected(f"t20 t23 {QUERY} t24 t60 {IMAGE} t21", DOG),
            expected(f"t20 t23 {QUERY} t24 t70 t21"),
        ]
        documents = [content(CAT), content("t60", DOG), "t70"]
        got = server.post("/v1/rerank", query=QUERY, documents=documents)
        assert [each["index"] for each in got["results"]] == np.argsort(scores)[::-1].tolist()
        found = {each["index"]: each["relevance_score"] for each in got["results"]}
        assert found == pytest.approx(dict(enumerate(scores)), abs=TOLERANCE)
        both = expected(f"t20 t90 {IMAGE} t24 {IMAGE} t21", CAT, DOG)
        got = server.post("/score", queries=content(CAT), documents=content(DOG), instruction="t90")
        assert got["data"][0]["score"] == pytest.approx(both, abs=TOLERANCE)
        with server.offline() as llm:
            found = llm.score(QUERY, documents)
            np.testing.assert_allclose(found, scores, rtol=0, atol=TOLERANCE)
            one = llm.score(content(CAT), content(DOG), instruction="t90")
            np.testing.assert_allclose(one, [both], rtol=0, atol=TOLERANCE)


def test_late_interaction(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Queries and pages are written as the model's processor does, not by its chat template."""
    pooled = Pooled(task=Task.TOKEN_EMBED, width=WIDTH)
    with served(colqwen2(tmp_path), tmp_path_factory.mktemp("log"), CHAT) as server:
        query = normalized(server.rows(f"Query: {QUERY}{TEXT_END * 10}\n"))
        page = f"<|im_start|>user\n{IMAGE}Describe the image.<|im_end|>{TEXT_END}"
        cat, dog = (normalized(server.rows(page, image)) for image in (CAT, DOG))
        scores = [likeness(query, each, pooled) for each in (cat, dog)]
        documents = [content(CAT), content(DOG)]
        got = server.post("/score", queries=QUERY, documents=documents)
        found = [each["score"] for each in got["data"]]
        assert found == pytest.approx(scores, abs=TOLERANCE * len(query))
        got = server.post("/pooling", messages=[{"role": "document", **content(DOG)}])
        np.testing.assert_allclose(got["data"][0]["data"], dog, rtol=0, atol=TOLERANCE)
        got = server.post("/pooling", messages=[{"role": "query", "content": QUERY}])
        np.testing.assert_allclose(got["data"][0]["data"], query, rtol=0, atol=TOLERANCE)
        with server.offline() as llm:
            found = llm.score(QUERY, documents)
            np.testing.assert_allclose(found, scores, rtol=0, atol=TOLERANCE * len(query))
            (rows,) = llm.encode(content(DOG))
            np.testing.assert_allclose(rows, dog, rtol=0, atol=TOLERANCE)


def test_two_towers(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """CLIP: an image is a prompt of one token, which its tokenizer lacks."""
    size = PIXELS[1]
    settings = {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}}
    model, log = clip(tmp_path), tmp_path_factory.mktemp("log")
    processor = settings | {"image_processor_type": "CLIPImageProcessor"}
    with served(model, log, "", processor, max_model_len=77) as server:

        def seen(image: Image.Image) -> np.ndarray:
            pixels = CLIPImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
            return normalized(model.reference([], [pixels[0]]).numpy()[0])

        text = normalized(server.rows(f"{START} {QUERY} {END}")[0])
        cat, dog = seen(CAT), seen(DOG)
        got = server.post("/v2/embed", images=[url(CAT), url(DOG)])
        np.testing.assert_allclose(got["embeddings"]["float"], [cat, dog], rtol=0, atol=TOLERANCE)
        got = server.post("/v1/embeddings", messages=[{"role": "user", "content": QUERY}])
        np.testing.assert_allclose(got["data"][0]["embedding"], text, rtol=0, atol=TOLERANCE)
        got = server.post("/score", queries=QUERY, documents=[content(CAT), content(DOG)])
        found = [each["score"] for each in got["data"]]
        np.testing.assert_allclose(found, [text @ cat, text @ dog], rtol=0, atol=TOLERANCE)
        both = {"inputs": [content(QUERY, CAT)]}
        refused = httpx.post(f"{server.url}/v2/embed", json=both, timeout=60)
        assert refused.status_code == 400 and "one text, or one image" in refused.text


def test_texts_of_siglip_are_padded(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And images are prompts of one token."""
    size = {"height": siglip_models.PIXELS[1], "width": siglip_models.PIXELS[2]}
    model, log = siglip_models.siglip(tmp_path), tmp_path_factory.mktemp("log")
    processor = {"image_processor_type": "SiglipImageProcessor", "size": size}
    length = siglip_models.LENGTH
    with served(model, log, "", processor, max_model_len=length) as server:

        def read(text: str) -> np.ndarray:
            ids = siglip_models.padded(server.tokenizer.encode(text).ids)
            return normalized(model.reference(ids, []).numpy()[0])

        (pixels,) = SiglipImageProcessorPil(size=size)(CAT, return_tensors="np")["pixel_values"]
        cat, text = normalized(model.reference([], [pixels]).numpy()[0]), read(f"{QUERY} {END}")
        got = server.post("/v1/embeddings", messages=[{"role": "user", "content": QUERY}])
        np.testing.assert_allclose(got["data"][0]["embedding"], text, rtol=0, atol=TOLERANCE)
        got = server.post("/v1/embeddings", input=QUERY)  # its tokenizer adds no end
        np.testing.assert_allclose(got["data"][0]["embedding"], read(QUERY), rtol=0, atol=TOLERANCE)
        got = server.post("/score", queries=QUERY, documents=[content(CAT)])
        assert got["data"][0]["score"] == pytest.approx(text @ cat, abs=TOLERANCE)
        long = {"input": " ".join(["t50"] * (length + 1))}
        assert httpx.post(f"{server.url}/v1/embeddings", json=long, timeout=60).status_code == 400
