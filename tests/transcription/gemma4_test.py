"""Gemma 4 hears: what it writes of a file, in clips of 30 s, and in a chat, is what `transformers`
finds behind the prompt of its chat template."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from pagemill.render.transcription.clips import cut
from pagemill.render.transcription.testing.speech_tokenizers import byte_tokenizer
from transformers import (
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
)

from tests.e2e.server_process import NAME
from tests.transcription.transcribing_server import (
    MAX_TOKENS,
    RATE,
    TranscribingServer,
    is_letters,
    serve_letters,
    wav,
)

CONTROL = (
    "<|endoftext|>",
    "<|user|>",
    "<|assistant|>",
    "<|audio|>",
    "<|audio>",
    "<audio|>",
    "<|image|>",
    "<|image>",
    "<image|>",
    "<|video|>",
)
TOKENIZER = byte_tokenizer(CONTROL)
TEMPLATE = (
    "{% for message in messages %}<|user|>{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else %}<|{{ part.type }}|>{% endif %}"
    "{% endfor %}{% endfor %}<|assistant|>"
)
INSTRUCTION = "Transcribe the following speech segment in its original language."
_EXTRACTOR = Gemma4AudioFeatureExtractor()


def _model() -> Gemma4ForConditionalGeneration:
    text = {
        "vocab_size": TOKENIZER.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "max_position_embeddings": 2048,
        "eos_token_id": TOKENIZER.token_to_id("<|endoftext|>"),
    }
    vision = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "position_embedding_size": 96,
    }
    audio = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "subsampling_conv_channels": [128, 2],
        "output_proj_dims": 24,
    }
    ids = {
        f"{kind}_token_id": TOKENIZER.token_to_id(f"<|{kind}|>")
        for kind in ("audio", "image", "video")
    }
    config = Gemma4Config(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        tie_word_embeddings=False,
        **ids,
    )
    return Gemma4ForConditionalGeneration(config)


def _text_behind(served: TranscribingServer, prompt: str, samples: np.ndarray) -> str:
    """What `transformers` writes behind the prompt, whose placeholder of audio is replaced."""
    heard = dict(_EXTRACTOR([samples], sampling_rate=RATE, return_tensors="pt"))
    frames = int(heard["input_features_mask"].sum())
    sound = f"<|audio>{'<|audio|>' * -(-frames // 4)}<audio|>"
    return served.text_behind(TOKENIZER.encode(prompt.replace("<|audio|>", sound)).ids, heard)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranscribingServer]:
    with serve_letters(_model(), TOKENIZER, _EXTRACTOR, TEMPLATE, tmp_path_factory) as server:
        yield server


@pytest.mark.parametrize("seconds", [3, 40])
def test_text(served: TranscribingServer, seconds: int) -> None:
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    clips = cut(samples, RATE, 30)
    assert len(clips) == 1 + (seconds > 30)
    prompt = f"<|user|><|audio|>{INSTRUCTION}<|assistant|>"
    texts = [_text_behind(served, prompt, clip.samples) for clip in clips]
    assert all(map(is_letters, texts))
    answer = served.post(samples)
    assert answer.status_code == 200, answer.text
    assert answer.json()["text"].replace(" ", "") == "".join(texts)


def test_chats_hear_audio(served: TranscribingServer) -> None:
    samples = np.random.default_rng(5).normal(size=2 * RATE + 77).astype("f4") * 0.1
    file = base64.b64encode(wav(samples)).decode()
    sound = {"type": "input_audio", "input_audio": {"data": file, "format": "wav"}}
    words = {"type": "text", "text": "What?"}
    answer = _chat(served, [sound, words])
    assert answer.status_code == 200, answer.text
    text = answer.json()["choices"][0]["message"]["content"]
    assert text == _text_behind(served, "<|user|><|audio|>What?<|assistant|>", samples)
    longer = base64.b64encode(wav(np.zeros(31 * RATE, np.float32))).decode()
    refused = _chat(served, [{"type": "input_audio", "input_audio": {"data": longer}}])
    assert refused.status_code == 400 and "(30 s)" in refused.json()["error"]["message"]


def _chat(served: TranscribingServer, content: list[dict[str, object]]) -> httpx.Response:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0.0,
        "max_tokens": MAX_TOKENS,
    }
    url = f"{served.server.base_url}/v1/chat/completions"
    return httpx.post(url, json=body, timeout=120)
