"""A server of a tiny model that transcribes, beside the same model in `transformers`."""

from __future__ import annotations

import base64
import contextlib
import io
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, PreTrainedModel, SequenceFeatureExtractor

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.parity.tiny_models import save

RATE = 16_000
BINS = 8
MAX_TOKENS = 9
PATH = "/v1/audio/transcriptions"
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"
ENCODER_SIZES = {
    "num_mel_bins": BINS,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
"""Of a tiny encoder of audio."""
OPTIONS = ("--kv-cache-dtype", "f32", "--activation-dtype", "f32", "--max-num-seqs", "4")


def wav(samples: np.ndarray, rate: int = RATE) -> bytes:
    """A file of `samples`, f32 or int16, which it keeps as they are."""
    file = io.BytesIO()
    subtype = "PCM_16" if samples.dtype == np.int16 else "FLOAT"
    soundfile.write(file, samples, rate, format="WAV", subtype=subtype)
    return file.getvalue()


class RealtimeClient:
    """A session of openai's client."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def update(self, audio_input: dict[str, Any] | None = None, **fields: Any) -> None:
        """Sets fields of the session; turns are not detected unless `audio_input` says so."""
        audio = {"input": {"turn_detection": None} | (audio_input or {})}
        self._connection.session.update(session={**fields, "audio": audio})

    def append(self, samples: np.ndarray) -> None:
        """Sends `samples`, int16 at the rate of the session, in parts."""
        for part in np.array_split(samples, 1 + len(samples) // 4000):
            audio = base64.b64encode(part.tobytes()).decode()
            self._connection.input_audio_buffer.append(audio=audio)

    def commit(self, samples: np.ndarray) -> None:
        """Sends `samples`, and commits them."""
        self.append(samples)
        self._connection.input_audio_buffer.commit()

    def respond(self, **response: Any) -> None:
        """Wants a response."""
        self._connection.response.create(response=response)

    def until(self, kind: str) -> Any:
        """The next event of this type; there is no error before it."""
        for event in self._connection:
            assert event.type != "error", event
            if event.type == kind:
                return event
        raise AssertionError("the session was closed")


@contextlib.contextmanager
def session(server: ServerProcess, **query: str) -> Iterator[RealtimeClient]:
    """A session of `/v1/realtime`."""
    client = openai.OpenAI(api_key="x", base_url=f"{server.base_url}/v1")
    with client.realtime.connect(
        model=NAME, extra_query=query, websocket_connection_options={"proxy": None}
    ) as connection:
        yield RealtimeClient(connection)


def llama_config(tokenizer: Tokenizer, end: int) -> LlamaConfig:
    """A tiny language model whose texts end with the token `end`."""
    return LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=end,
    )


@dataclass(frozen=True)
class TranscribingServer:
    """A running server, and its model in `transformers`."""

    server: ServerProcess
    reference: PreTrainedModel
    tokenizer: Tokenizer

    def post(
        self, samples: np.ndarray, path: str = PATH, rate: int = RATE, **fields: str
    ) -> httpx.Response:
        files = {"file": ("a.wav", wav(samples, rate))}
        data = {"model": NAME, "max_completion_tokens": str(MAX_TOKENS)} | fields
        return httpx.post(f"{self.server.base_url}{path}", files=files, data=data, timeout=120)

    def next_logits(self, ids: Sequence[int], heard: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Of what follows `ids`, with inputs of the encoder `heard`: [vocabulary]."""
        with torch.inference_mode():
            return self.reference(input_ids=torch.tensor([ids]), **heard).logits[0, -1]

    def text_behind(self, ids: Sequence[int], heard: Mapping[str, torch.Tensor]) -> str:
        """The likeliest tokens behind `ids`, as text."""
        tokens: list[int] = []
        for _ in range(MAX_TOKENS):
            tokens.append(int(self.next_logits([*ids, *tokens], heard).argmax()))
        return self.tokenizer.decode(tokens)


@contextlib.contextmanager
def serve_letters(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    extractor: SequenceFeatureExtractor,
    template: str,
    folders: pytest.TempPathFactory,
) -> Iterator[TranscribingServer]:
    """Serves `model` with random weights that write small letters."""
    folder: Path = folders.mktemp("model")
    torch.manual_seed(3)
    reference = save(model, folder)
    with torch.no_grad():
        head = reference.get_output_embeddings().weight
        head *= 0.01
        head[[tokenizer.token_to_id(letter) for letter in string.ascii_lowercase]] *= 100
    reference.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template)
    extractor.save_pretrained(folder)
    with serve(str(folder), folders.mktemp("server"), OPTIONS) as server:
        yield TranscribingServer(server, reference, tokenizer)
        server.wait_until_idle()


def is_letters(text: str) -> bool:
    """Whether `text` is all that a model of `serve_letters` may write."""
    return set(text) <= set(string.ascii_lowercase) and len(text) == MAX_TOKENS
