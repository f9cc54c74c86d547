"""A tiny model with media on disk, run through the engine and compared with `transformers`."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill import _native
from pagemill.engine.llm import LLM, Output
from pagemill.engine.offline_media import ImageInput
from pagemill.engine.offline_prompts import Prompt
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.runner.build import BuildOptions, BuiltEncoder, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel

from tests.families.divided import check_ranks, check_stages

Item = ImageInput
"""An image, or samples of audio."""
GENERATED = 6
_TOLERANCE = 1e-4  # as in tests/families

# Logits [tokens, vocabulary] of token ids with media, by `transformers`.
Reference = Callable[[list[int], Sequence[Any]], torch.Tensor]


def text(seed: int, length: int) -> list[int]:
    """Token ids that are no placeholder."""
    return np.random.default_rng(seed).integers(10, 257, length).tolist()


def media_prompts(placeholder: list[int]) -> list[list[int]]:
    """A prompt with two items, one with one, and one without any."""
    return [
        text(1, 3) + placeholder + text(2, 5) + placeholder + text(3, 2),
        placeholder + text(4, 4),
        text(5, 30),
    ]


def newer_name(name: str) -> str:
    """The name of a tensor in checkpoints whose parts are all behind `model.`."""
    if name.startswith("language_model."):
        inner = name.removeprefix("language_model.")
        return inner.replace("model.", "model.language_model.", 1)
    return f"model.{name}"


class MediaTestModel:
    """A checkpoint of 257 tokens at `path`, and its reference in `transformers`. `argument` of
    `LLM.generate` has its media."""

    argument = "images"

    def __init__(
        self, path: Path, reference: Reference, words: Mapping[int, str] | None = None
    ) -> None:
        """`words`: token ids that are no `t<id>`; those in angle brackets are control tokens."""
        self.path, self.reference = path, reference
        words = words or {}
        vocab = {words.get(i, f"t{i}"): i for i in range(257)}
        tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
        tokenizer.decoder = WordPiece()
        tokenizer.add_special_tokens([word for word in words.values() if word.startswith("<")])
        tokenizer.save(str(path / "tokenizer.json"))

    def logits(
        self, prompt: list[int], generated: list[int], media: Sequence[Item]
    ) -> torch.Tensor:
        """Those of all tokens by the reference, [tokens, vocabulary]."""
        return self.reference(prompt + generated, media)

    def check_divided(self) -> None:
        """Ranks and stages compute the logits of a text without media."""
        ids = text(7, 45)
        expected = self.logits(ids[:-1], ids[-1:], []).numpy()

        def distance(logits: npt.NDArray[np.float32]) -> float:
            scale = max(1.0, float(np.abs(expected).max()))
            return float(np.abs(logits - expected).max()) / (_TOLERANCE * scale)

        source, steps = ModelSource.open(self.path), [{0: ids[:-1]}, {0: ids[-1:]}]
        check_ranks(source, BuildOptions(), steps, distance)
        check_stages(source, BuildOptions(), steps, distance)

    def check_language_model_only(self, tower: str, item: Item) -> None:
        """Without an encoder, whose tensors have `tower` in their names, text is computed as with
        it, and media are refused."""
        source = ModelSource.open(self.path)
        whole, part = (build(source, BuildOptions(language_only=only)) for only in (False, True))
        assert any(tower in encoder.program_text for encoder in whole.encoders)
        assert not part.encoders and tower not in part.program_text
        prompt = text(1, 30)
        with self.llm(limit_mm_per_prompt={self.argument.removesuffix("s"): 0}) as llm:
            (output,) = self.generate(llm, [prompt], [[]])
            self.check(output, [])
            with pytest.raises(EngineError, match="at most 0 are taken"):
                self.generate(llm, [prompt], [[item]])
            llm.update_weights(self.path)
            assert self.generate(llm, [prompt], [[]])[0].choices == output.choices
        with (
            self.llm(language_model_only=True) as llm,
            pytest.raises(EngineError, match=f"takes no {self.argument}"),
        ):
            self.generate(llm, [prompt], [[item]])

    @contextmanager
    def llm(self, **options: Any) -> Iterator[LLM]:
        """The model with small limits; `options` replace them."""
        config = {
            "max_model_len": 200,
            "max_num_batched_tokens": 64,
            "max_num_seqs": 4,
            "kv_cache_dtype": "f32",
            "activation_dtype": "f32",
            "pack_cache": False,
        }
        with LLM(str(self.path), **(config | options)) as made:
            yield made

    def generate(
        self,
        llm: LLM,
        prompts: Sequence[Prompt],
        media: Sequence[Sequence[Item]],
        **fields: Any,
    ) -> list[Output]:
        """The most likely tokens behind each prompt."""
        return llm.generate(
            prompts,
            **{self.argument: media},
            temperature=0.0,
            max_tokens=GENERATED,
            ignore_eos=True,
            progress=io.StringIO(),
            **fields,
        )

    def generate_together(
        self, llm: LLM, prompts: Sequence[Prompt], media: Sequence[Sequence[Item]]
    ) -> list[Output]:
        """`generate`, where no step runs until all requests wait: how often they are preempted
        does not depend on how fast they are submitted."""
        engine = llm._engine
        engine.pause("keep")
        with ThreadPoolExecutor(1) as thread:
            outputs = thread.submit(self.generate, llm, prompts, media)
            while engine.stats().num_waiting < len(prompts) and not outputs.done():
                time.sleep(0.001)
            engine.resume()
            return outputs.result()

    def check(self, output: Output, media: Sequence[Item]) -> None:
        """Each token of the output is what `transformers` chooses there, and its log probabilities,
        if there are any, are those of `transformers`."""
        choice = output.choices[0]
        tokens = choice.token_ids
        logits = self.logits(output.prompt_token_ids, tokens[:-1], media)
        rows = logits[len(output.prompt_token_ids) - 1 :]
        assert tokens == rows.argmax(-1).tolist() and len(tokens) == GENERATED
        if choice.logprobs is None:
            return
        expected = rows.log_softmax(-1).max(-1).values.numpy()
        np.testing.assert_allclose([v.logprob for v in choice.logprobs], expected, atol=2e-4)

    def check_all(
        self, prompts: Sequence[Prompt], media: Sequence[Sequence[Item]], **options: Any
    ) -> int:
        """What the model with `options` generates of these prompts together (`check`); returns how
        many items it has encoded."""
        with self.llm(**options) as llm:
            outputs = self.generate(llm, prompts, media, logprobs=0)
            for output, own in zip(outputs, media, strict=True):
                self.check(output, own)
            return encoded(llm)

    def check_refused(self, llm: LLM, prompt: Prompt, media: Sequence[Item], message: str) -> None:
        """A prompt with these media is a client's mistake, which `message` says."""
        with pytest.raises(EngineError, match=message) as refused:
            self.generate(llm, [prompt], [media])
        assert refused.value.code == "INVALID_ARGUMENT"


def encoded(llm: LLM) -> int:
    """The number of media items encoded so far."""
    return llm._loaded.core.runner.num_encoded_media


def encoder_outputs(
    encoder: BuiltEncoder, items: Sequence[MediaFeatures]
) -> Iterator[npt.NDArray[np.float32]]:
    """The embeddings of items of one size, one after the other, by each executor."""
    traits = encoder.traits
    each = traits.class_tokens + traits.rows
    tokens = np.arange(each * len(items), dtype=np.int32)
    row = tokens % each - traits.class_tokens

    def with_class_tokens(rows: Sequence[np.ndarray]) -> np.ndarray:
        padded = np.pad(np.stack(rows), ((0, 0), (traits.class_tokens, 0), (0, 0)))
        return padded.reshape(len(tokens), -1)

    batch = {
        "token_ids": tokens * 0,
        "positions": tokens % each,
        "query_start": np.arange(len(items) + 1, dtype=np.int32) * each,
        "seq_lens": np.full(len(items), each, np.int32),
        "logits_rows": tokens[:0],
        "media_rows": tokens[(row >= 0) & (row % max(1, traits.rows // traits.tokens) == 0)],
        "kv": [],
        "inputs": {"features": with_class_tokens([item.rows for item in items])},
    }
    if traits.grid:
        positions = [item.positions.rows for item in items if item.positions is not None]
        batch["grid_positions"] = with_class_tokens(positions)
    options = _native.ExecutorOptions(activation_dtype="f32")
    yield _native.NativeExecutor(encoder.program_text, options)(batch)["embeddings"]
    yield TorchExecutor(encoder.program_text, TorchOptions())(batch)["embeddings"]
