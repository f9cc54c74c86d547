"""Encoder-decoders of text and of images over HTTP: a server answers as the offline model does."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.media.encoder_decoder_models import PAD, POSITIONS, START, TextToText, model
from tests.media.media_model import text
from tests.media.vision_encoder_decoder_models import IMAGE, PLACEHOLDER, SIDE, TOKENS
from tests.media.vision_encoder_decoder_models import START as IMAGE_START
from tests.media.vision_encoder_decoder_models import model as image_model

OPTIONS = {
    "max_model_len": 2 * POSITIONS,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
FIELDS = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module", name="t5")
def _t5(tmp_path_factory: pytest.TempPathFactory) -> TextToText:
    path = tmp_path_factory.mktemp("t5")
    made = model(path, "t5")
    tokenizer = Tokenizer(WordLevel({f"t{i}": i for i in range(257)}, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = WordPiece()
    tokenizer.save(str(path / "tokenizer.json"))
    return made


@pytest.fixture(scope="module", name="server")
def _server(t5: TextToText, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    with serve(str(t5.path), tmp_path_factory.mktemp("log"), options) as server:
        yield server


def complete(server: ServerProcess, prompt: Any, **fields: Any) -> httpx.Response:
    body = {"model": NAME, "prompt": prompt, **FIELDS, **fields}
    return httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)


def offline(made: TextToText, prompts: list[Any]) -> list[list[int]]:
    with made.llm(max_model_len=2 * POSITIONS) as llm:
        return [output.choices[0].token_ids for output in made.generate_texts(llm, prompts)]


def words(ids: list[int]) -> str:
    return " ".join(f"t{i}" for i in ids)


def test_completions(server: ServerProcess, t5: TextToText) -> None:
    texts: list[Any] = [text(1, 9), text(2, 40)]
    begun = {"encoder_prompt": texts[0], "decoder_prompt": [9, 10]}
    *expected, expected_begun = offline(t5, [*texts, begun])
    body = complete(server, texts).json()
    assert [choice["token_ids"] for choice in body["choices"]] == expected
    assert body["choices"][0]["prompt_token_ids"] == [PAD] * 9 + [START]
    assert body["usage"]["prompt_tokens"] == 9 + 1 + 40 + 1
    for decoder in ([9, 10], "t9 t10"):
        (choice,) = complete(server, words(texts[0]), decoder_prompt=decoder).json()["choices"]
        assert choice["token_ids"] == expected_begun


def test_echo_says_what_was_read(server: ServerProcess) -> None:
    own = text(1, 4)
    for prompt in (own, words(own)):
        (choice,) = complete(server, prompt, echo=True).json()["choices"]
        assert choice["text"].startswith(words(own))


def test_texts_are_cut_or_refused(server: ServerProcess, t5: TextToText) -> None:
    long = text(3, POSITIONS + 5)
    refused = complete(server, long)
    assert refused.status_code == 400
    message = refused.json()["error"]["message"]
    assert f"`prompt` has 95 tokens; the encoder of this model reads 1 to {POSITIONS}" in message
    cut = complete(server, long, truncate_prompt_tokens=-1).json()
    assert [cut["choices"][0]["token_ids"]] == offline(t5, [long[-POSITIONS:]])


def test_prompts_are_not_rendered(server: ServerProcess) -> None:
    body = {"model": NAME, "prompt": text(1, 5)}
    answer = httpx.post(f"{server.base_url}/v1/completions/render", json=body, timeout=60)
    assert answer.status_code == 400
    assert "cannot be rendered" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": POSITIONS}, "is too large"),
        ({"prompt_logprobs": 1}, "no log probabilities of prompts"),
        ({"decoder_prompt": [999]}, "`decoder_prompt` holds token id 999 at position 0"),
        ({"decoder_prompt": " "}, "`decoder_prompt` is empty"),
        ({"echo": True, "truncate_prompt_tokens": 3}, "leave out `truncate_prompt_tokens`"),
        ({"decoder_prompt": [9] * POSITIONS}, f"`decoder_prompt` has {POSITIONS} tokens"),
    ],
)
def test_what_does_not_fit_is_refused(
    server: ServerProcess, fields: dict[str, Any], message: str
) -> None:
    refused = complete(server, text(1, 5), **fields)
    assert refused.status_code == 400
    assert message in refused.json()["error"]["message"]


def test_images_in_chats(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A template writes the image in front, and what the decoder begins with."""
    path = tmp_path_factory.mktemp("trocr")
    made = image_model(path, "trocr")
    vocab = {f"t{i}": i for i in range(257)}
    vocab = {
        {f"t{PLACEHOLDER}": "<pad>", f"t{IMAGE_START}": "<s>"}.get(k, k): i
        for k, i in vocab.items()
    }
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = WordPiece()
    tokenizer.add_special_tokens(["<pad>", "<s>"])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(
        "{%- for part in messages[-1].content if part.type == 'image' %}<pad>{% endfor %}<s>"
    )
    settings = {"feature_extractor_type": "ViTFeatureExtractor", "size": SIDE}
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    values = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)
    picture, file = Image.fromarray(values), io.BytesIO()
    picture.save(file, "PNG")
    (pixels,) = ViTImageProcessorPil(size=SIDE)(picture, return_tensors="np")["pixel_values"]
    longest = {"max_model_len": TOKENS["trocr"] + 60}
    with made.llm(**longest) as llm:
        (expected,) = made.generate(llm, [[*IMAGE, IMAGE_START]], [[pixels]])
        made.check(expected, [pixels])

    options = [f"--{name.replace('_', '-')}={value}" for name, value in (OPTIONS | longest).items()]
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    with serve(str(path), tmp_path_factory.mktemp("log"), options) as server:

        def chat(*messages: dict[str, Any]) -> httpx.Response:
            body = {"model": NAME, "messages": messages, **FIELDS}
            return httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)

        answer = chat(message)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["token_ids"] == expected.choices[0].token_ids
        refused = chat({"role": "user", "content": "t20"})
        assert refused.status_code == 400
        assert "has one image, this one has 0" in refused.json()["error"]["message"]
