"""Images through the engine: LLaVA's tokens are those of `transformers`, whatever happens to its
requests, and equal images are encoded once."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.config import ConfigError
from pagemill.engine.llm import LLM, Output
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from transformers import PreTrainedModel

from tests.parity.tiny_models import LLAVA_IMAGE, LLAVA_PLACEHOLDER, llava, make, save

GENERATED = 6
TOKENS = 9  # of an image
IMAGE = [LLAVA_PLACEHOLDER]


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=LLAVA_IMAGE).astype(np.float32)


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(4, 257, length).tolist()


class Model:
    """A tiny LLaVA on disk, and what `transformers` does with it."""

    def __init__(self, path: Path, reference: PreTrainedModel) -> None:
        self.path, self.reference = path, reference
        vocab = {f"t{i}": i for i in range(257)}
        tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
        tokenizer.decoder = WordPiece()
        tokenizer.save(str(path / "tokenizer.json"))

    @contextmanager
    def llm(self, **options: Any) -> Iterator[LLM]:
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
        self, llm: LLM, prompts: Sequence[list[int]], images: Sequence[Sequence[np.ndarray]]
    ) -> list[Output]:
        return llm.generate(
            prompts,
            images=images,
            temperature=0.0,
            max_tokens=GENERATED,
            ignore_eos=True,
            progress=io.StringIO(),
        )

    def check(self, output: Output, images: Sequence[np.ndarray]) -> None:
        """Each token of the output is what `transformers` chooses there."""
        tokens = output.choices[0].token_ids
        ids = torch.tensor([output.prompt_token_ids + tokens[:-1]])
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            logits = self.reference(ids, pixel_values=pixels, use_cache=False).logits[0]
        expected = logits[len(output.prompt_token_ids) - 1 :].argmax(-1).tolist()
        assert tokens == expected and len(tokens) == GENERATED


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("llava")
    return Model(path, make("llava", path))


def encoded(llm: LLM) -> int:
    return llm._loaded.core.runner.num_encoded_media


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: Model, executor: str) -> None:
    a, b = image(1), image(2)
    prompts = [
        text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
        IMAGE + text(4, 4),
        text(5, 30),
        text(6, 7) + IMAGE + IMAGE,
    ]
    images = [[a, b], [b], [], [b, a]]
    with model.llm(executor=executor) as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            assert output.prompt_token_ids.count(LLAVA_PLACEHOLDER) == TOKENS * len(own)
            model.check(output, own)
        assert encoded(llm) == 2, "equal images are encoded once"


@pytest.mark.parametrize("step", [11, 16, 17])
def test_steps_may_end_inside_an_image(model: Model, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [image(1), image(2)]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images])
        model.check(output, images)


def test_prefixes_are_those_of_equal_images(model: Model) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    with model.llm() as llm:
        cached = []
        for own in (image(1), image(2), image(1)):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 48]
        assert encoded(llm) == 2, "tokens of a cached prefix need no embeddings"


def test_preempted_requests_get_their_images_again(model: Model) -> None:
    prompts = [text(i, 40) + IMAGE + text(i + 9, 30) for i in range(4)]
    images = [[image(i)] for i in range(4)]
    page = 2 * 2 * 16 * 16 * 4 * 3  # bytes: keys and values of three layers
    with model.llm(max_model_len=90, kv_cache_memory_bytes=f"{page * 11}B") as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            model.check(output, own)
        assert llm._engine.stats().num_preemptions > 0


def test_a_small_encoder_cache_encodes_again(model: Model) -> None:
    """Steps of 9 tokens: one image is encoded in a step, and one is kept."""
    images = [image(1), image(2), image(1)]
    prompt = IMAGE + text(1, 9) + IMAGE + text(2, 9) + IMAGE + text(3, 3)
    with model.llm(max_num_batched_tokens=9, max_num_seqs=1) as llm:
        (output,) = model.generate(llm, [prompt], [images])
        model.check(output, images)
        assert encoded(llm) == 3


VARIANTS: dict[str, dict[str, Any]] = {
    "class token": {"vision_feature_select_strategy": "full"},
    "last layer": {"vision_feature_layer": -1},
    "first layer": {"vision_feature_layer": 1},
    "no bias": {"multimodal_projector_bias": False, "projector_hidden_act": "relu"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_encoders_of_both_executors(changes: dict[str, Any], tmp_path: Path) -> None:
    from pagemill import _native

    torch.manual_seed(0)
    reference = save(llava(**changes), tmp_path)
    pixels = np.stack([image(1), image(2)])
    with torch.inference_mode():
        features = reference.get_image_features(torch.tensor(pixels)).pooler_output
        expected = torch.cat(list(features)).numpy()
    encoder = build(ModelSource.open(tmp_path), BuildOptions()).encoder
    assert encoder is not None
    assert encoder.traits.tokens * 2 == len(expected)
    tokens = np.arange(20, dtype=np.int32)
    batch = {
        "token_ids": tokens * 0,
        "positions": tokens % 10,
        "query_start": np.array([0, 10, 20], np.int32),
        "seq_lens": np.array([10, 10], np.int32),
        "logits_rows": tokens[:0],
        "media_rows": tokens[tokens % 10 != 0],
        "kv": [],
        "inputs": {"features": np.concatenate([encoder.features(p) for p in pixels])},
    }
    for run in (
        _native.NativeExecutor(
            encoder.program_text, _native.ExecutorOptions(activation_dtype="f32")
        ),
        TorchExecutor(encoder.program_text, TorchOptions()),
    ):
        np.testing.assert_allclose(run(batch)["embeddings"], expected, rtol=0, atol=2e-5)


def test_older_checkpoints_have_other_names(model: Model, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    older = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in tensors.items()
    }
    save_file(older, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert built.encoder is not None
    assert "vision_tower.vision_model.encoder.layers.0" in built.encoder.program_text


def test_images_that_do_not_fit_are_refused(model: Model) -> None:
    with model.llm() as llm:

        def refuse(message: str, prompt: list[int], images: list[np.ndarray]) -> None:
            with pytest.raises(EngineError, match=message) as refused:
                model.generate(llm, [prompt], [images])
            assert refused.value.code == "INVALID_ARGUMENT"

        refuse("1 placeholders .token 3. for 2 images", IMAGE, [image(1), image(2)])
        refuse("1 placeholders .token 3. for 0 images", IMAGE, [])
        refuse(r"image 0: .* must be \[3, 24, 24\], got \[3, 8\]", IMAGE, [np.zeros((3, 8))])
        refuse("image 0 has pixels that are not finite", IMAGE, [image(1) * np.nan])
        with pytest.raises(EngineError, match="images of 2 prompts, but 1"):
            model.generate(llm, [IMAGE], [[image(1)], [image(1)]])
        # What does not go through `generate` is checked by the engine.
        sampling = llm._loaded.core.seam.make_sampling(temperature=0.0, max_tokens=1)
        status_error = llm._loaded.core.seam.status_error

        def submit(items: list[tuple[str, int, int]], features: list[np.ndarray]) -> None:
            prompt = np.full(40, 3, np.int32)
            llm._engine.submit(99, prompt, sampling, media=items, media_features=features)

        good = np.zeros((9, 192), np.float32)
        for items, features, message in (
            ([("a", 0, 9)], [], "has 1 media items, but features of 0"),
            ([("a", 0, 9)], [good[:8]], "features of 8 rows of 192 channels, but this model"),
            ([("a", 0, 8)], [good], "has 8 tokens, but an item of this model takes the place of 9"),
        ):
            with pytest.raises(status_error, match=message):
                submit(items, features)
        # None of it hurt the engine.
        (output,) = model.generate(llm, [IMAGE + text(1, 3)], [[image(1)]])
        model.check(output, [image(1)])


def test_a_model_without_an_encoder_refuses_images(tmp_path: Path) -> None:
    other = Model(tmp_path, make("llama", tmp_path))
    with other.llm() as llm, pytest.raises(EngineError, match="this model takes no images"):
        other.generate(llm, [text(1, 3)], [[image(1)]])


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    save(llava(vision_feature_layer=[-2, -1]), tmp_path)
    with pytest.raises(ModelConfigError, match="one layer is supported, not several"):
        build(ModelSource.open(tmp_path), BuildOptions())
    make("llava", tmp_path)
    with pytest.raises((ModelConfigError, ConfigError), match="which ranks do not exchange"):
        LLM(str(tmp_path), tensor_parallel_size=2)
