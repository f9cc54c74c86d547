"""Images and audio as embeddings: encoders without their language model make them, and the language
model without encoders generates what both together do, to the last bit."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.llm import LLM, Output
from pagemill.engine.media_adapters import with_media_adapters
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.numpy import save_file
from transformers import PreTrainedModel

from tests.media import omni_models
from tests.media.audio_models import MOST, AudioModel, audio, qwen2_audio, voxtral
from tests.media.ernie_vl_models import ernie_vl
from tests.media.granite_speech_models import granite_speech
from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.omni_models import omni_model
from tests.media.qwen_vl_models import MAKERS
from tests.media.qwen_vl_models import image as patches
from tests.media.tiny_tiled_models import (
    GEMMA3_TILE,
    GEMMA3_WORDS,
    gemma3,
    llava_next,
    llava_onevision,
)
from tests.media.whisper_models import whisper
from tests.parity.tiny_models import (
    LLAVA_PLACEHOLDER,
    PIXTRAL_WORDS,
    SMOLVLM_WORDS,
    llava,
    make,
    mistral3,
    qwen2_vl,
    save,
    smolvlm,
)

IMAGE = [LLAVA_PLACEHOLDER]  # of all families here


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tiles(seed: int, shape: Sequence[int], *grid: int) -> tuple[np.ndarray, tuple[int, ...]]:
    return pixels(seed, *shape), grid


@dataclass(frozen=True)
class Family:
    """A model, two of its images or audios, and words of its vocabulary."""

    make: Callable[[], PreTrainedModel]
    media: tuple[Any, Any]
    words: dict[int, str] | None = None


PATCHES = patches(1, 6, 6), patches(2, 4, 10)
LLAVA = pixels(1, 3, 24, 24), pixels(2, 3, 24, 24)
FAMILIES = {
    # Tokens that see each other, and texts around tiles.
    "gemma3": Family(gemma3, (pixels(1, *GEMMA3_TILE), pixels(2, 3, *GEMMA3_TILE)), GEMMA3_WORDS),
    "llava": Family(llava, LLAVA),
    # Rows across tiles, with embeddings that are learned; and between those of patches.
    "llava_next": Family(
        llava_next, (tiles(1, (3, 3, 16, 16), 1, 16, 32), tiles(2, (5, 3, 16, 16), 1, 60, 41))
    ),
    "llava_onevision": Family(
        llava_onevision, (tiles(1, (3, 3, 16, 16), 1, 16, 32), tiles(2, (10, 3, 16, 16), 1, 48, 48))
    ),
    # Ends of rows, which keep embeddings of their own.
    "mistral3": Family(mistral3, (pixels(1, 3, 24, 24), pixels(2, 3, 16, 40)), PIXTRAL_WORDS),
    "qwen2_vl": Family(qwen2_vl, PATCHES),
    # Rows of several layers.
    "qwen3_vl": Family(MAKERS["qwen3_vl"], PATCHES),
    "smolvlm": Family(
        smolvlm, (pixels(1, 3, 18, 18), tiles(2, (5, 3, 18, 18), 1, 2, 2)), SMOLVLM_WORDS
    ),
}


def no_reference(ids: list[int], media: object) -> torch.Tensor:
    raise AssertionError((ids, media))


def image_model(name: str, path: Path) -> MediaTestModel:
    family = FAMILIES[name]
    torch.manual_seed(0)
    save(family.make(), path)
    return MediaTestModel(path, no_reference, family.words)


def apart(llm: LLM, kind: Any, media: Sequence[Sequence[Any]]) -> list[list[dict[str, Any]]]:
    """What encoders make of the media of each prompt."""
    return [llm.encode_media(kind, own) for own in media]


def said(outputs: Sequence[Output]) -> list[Any]:
    """Tokens, also those of prompts, and log probabilities."""
    return [
        (each.prompt_token_ids, c.token_ids, [v.logprob for v in c.logprobs or ()])
        for each in outputs
        for c in each.choices
    ]


def check_apart(
    model: MediaTestModel,
    kind: str,
    prompts: Sequence[list[int]],
    media: Sequence[Sequence[Any]],
    **options: Any,
) -> list[list[dict[str, Any]]]:
    """Compares a model that is divided with the whole one; returns the embeddings."""
    with model.llm() as llm:
        expected = model.generate(llm, prompts, media, logprobs=0)
    with model.llm(mm_encoder_only=True) as llm:
        given = apart(llm, kind, media)
    with model.llm(language_model_only=True, enable_mm_embeds=True, **options) as llm:
        outputs = model.generate(llm, prompts, given, logprobs=0)
        again = model.generate(llm, prompts, given, logprobs=0)
        num_items = encoded(llm)
        assert said(again) == said(outputs) == said(expected)
        first, later = ([each.num_cached_tokens for each in o] for o in (outputs, again))
        assert min(later) > max(first) == 0
        assert num_items == encoded(llm) > 0
    return given


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_images(name: str, tmp_path: Path) -> None:
    model = image_model(name, tmp_path)
    one, two = FAMILIES[name].media
    prompts = [text(1, 20) + IMAGE + text(2, 5) + IMAGE + text(3, 2), IMAGE + text(4, 20)]
    check_apart(model, "image", prompts, [[one, two], [two]], max_num_batched_tokens=32)


@pytest.mark.parametrize("make", [qwen2_audio, voxtral])
def test_audio(make: Callable[[Path], MediaTestModel], tmp_path: Path) -> None:
    """Of any length; and in parts that are encoded one by one."""
    model = make(tmp_path)
    assert isinstance(model, AudioModel)
    short, long = audio(1, 3000), audio(2, MOST)
    prompts = [text(1, 20) + IMAGE + text(2, 5) + IMAGE, IMAGE + text(4, 20)]
    check_apart(model, "audio", prompts, [[short, long], [long]])


@pytest.mark.parametrize("family", ["qwen2_5_omni", "qwen3_omni"])
def test_models_with_several_encoders(family: str, tmp_path: Path) -> None:
    """Tokens of images have positions of several dimensions, and those of audio do not."""
    model = omni_model(family, tmp_path)
    prompt = text(1, 5) + omni_models.IMAGE + text(2, 3) + omni_models.AUDIO + text(3, 9)
    images, sounds = [PATCHES[0]], [audio(1, 5000)]
    fields: dict[str, Any] = {"temperature": 0.0, "max_tokens": 5, "logprobs": 0}
    with model.llm() as llm:
        expected = llm.generate(prompt, images=[images], audios=[sounds], **fields)
    with model.llm(mm_encoder_only=True) as llm:
        given, heard = llm.encode_media("image", images), llm.encode_media("audio", sounds)
    with model.llm(language_model_only=True, enable_mm_embeds=True) as llm:
        outputs = llm.generate(prompt, images=[given], audios=[heard], **fields)
        assert said(outputs) == said(expected)
    with model.llm(enable_mm_embeds=True) as llm:  # beside its own encoders
        outputs = llm.generate(prompt, images=[given], audios=[sounds], **fields)
        assert said(outputs) == said(expected)


@pytest.fixture(scope="module", name="llava_model")
def _llava(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return image_model("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module", name="llava_rows")
def _llava_rows(llava_model: MediaTestModel) -> list[dict[str, Any]]:
    with llava_model.llm(mm_encoder_only=True) as llm:
        return llm.encode_media("image", LLAVA)


def test_rows_alone(llava_model: MediaTestModel, llava_rows: list[dict[str, Any]]) -> None:
    """Where nothing else is in prompts, rows need nothing beside them; other rows are other
    images, to the cache of prefixes, too."""
    one, two = (each["image_embeds"] for each in llava_rows)
    prompt = text(1, 17) + IMAGE + text(2, 20)
    with llava_model.llm() as llm:
        expected = llava_model.generate(llm, [prompt] * 2, [[each] for each in LLAVA], logprobs=0)
    with llava_model.llm(enable_mm_embeds=True) as llm:
        bare = [[{"image_embeds": each}] for each in (one, torch.tensor(two))]
        outputs = [llava_model.generate(llm, [prompt], [own], logprobs=0)[0] for own in bare]
        assert said(outputs) == said(expected) and said(outputs[:1]) != said(outputs[1:])
        message = {"type": "image_embeds", "image_embeds": one}
        given, _ = llm._media.of_messages([{"role": "user", "content": [message]}])
        assert given == [{"role": "user", "content": [{"type": "image"}]}]


def test_other_weights(
    llava_model: MediaTestModel, llava_rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Those of encoders alone, and of a model without them."""
    torch.manual_seed(1)
    save(llava(), tmp_path)
    prompt = text(1, 17) + IMAGE + text(2, 20)
    with llava_model.llm(mm_encoder_only=True) as llm:
        llm.update_weights(tmp_path)
        rows = llm.encode_media("image", LLAVA[:1])
        assert not np.array_equal(rows[0]["image_embeds"], llava_rows[0]["image_embeds"])
    options = {"language_model_only": True, "enable_mm_embeds": True}
    with llava_model.llm(**options) as llm:
        llm.update_weights(tmp_path)
        outputs = llava_model.generate(llm, [prompt], [rows], logprobs=0)
    with MediaTestModel(tmp_path, no_reference).llm() as llm:
        assert said(outputs) == said(llava_model.generate(llm, [prompt], [LLAVA[:1]], logprobs=0))


def test_ranks(llava_model: MediaTestModel, llava_rows: list[dict[str, Any]]) -> None:
    prompt = text(1, 17) + IMAGE + text(2, 20)
    tokens = []
    for options in ({}, {"tensor_parallel_size": 2, "language_model_only": True}):
        with llava_model.llm(enable_mm_embeds=True, **options) as llm:
            (output,) = llava_model.generate(llm, [prompt], [llava_rows[:1]])
            tokens.append(output.choices[0].token_ids)
    assert tokens[0] == tokens[1]


def test_another_executor(llava_model: MediaTestModel) -> None:
    prompt, tokens = text(1, 17) + IMAGE + text(2, 20), list[list[int]]()
    with llava_model.llm(executor="torch", mm_encoder_only=True) as llm:
        rows = llm.encode_media("image", LLAVA[:1])
    for own, options in ((LLAVA[:1], {}), (rows, {"language_model_only": True})):
        with llava_model.llm(executor="torch", enable_mm_embeds=True, **options) as llm:
            tokens.append(llava_model.generate(llm, [prompt], [own])[0].choices[0].token_ids)
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["audio"]),
        ({"language_model_only": True, "enable_mm_embeds": True}, ["audio"]),
        ({"language_model_only": True}, []),
        ({"mm_encoder_only": True}, []),
    ],
)
def test_adapters_of_media_are_the_language_models(
    options: dict[str, Any], found: list[str], tmp_path: Path
) -> None:
    granite_speech(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | {"has_lora_adapter": True}))
    adapter = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    down, up = (np.zeros(shape, np.float32) for shape in ((2, 64), (64, 2)))
    name = "base_model.model.language_model.model.layers.0.self_attn.q_proj.lora"
    save_file(
        {f"{name}_A.weight": down, f"{name}_B.weight": up},
        tmp_path / "adapter_model.safetensors",
    )
    config = build_config(EngineConfig, {"model": str(tmp_path), **options})
    assert list(with_media_adapters(config, ModelSource.open(tmp_path)).lora.media) == found


def test_other_servers_that_are_not_there(llava_model: MediaTestModel, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    (tmp_path / "cat.png").write_bytes(b"not read here")
    with llava_model.llm(encoder_urls=url) as llm:
        with pytest.raises(EngineError, match="no server has encoded the image") as refused:
            llava_model.generate(llm, [IMAGE], [[str(tmp_path / "cat.png")]])
        assert refused.value.code == "UNAVAILABLE"
        llava_model.check_refused(llm, IMAGE, [LLAVA[0]], "no encoder is loaded")


def test_weights_of_the_other_part_are_not_read(llava_model: MediaTestModel) -> None:
    source = ModelSource.open(llava_model.path)
    encoders = build(source, BuildOptions(encoder_only=True, max_model_len=64))
    assert "language_model" not in encoders.program_text and not encoders.kv_groups
    assert encoders.encoders and encoders.max_model_len == 9
    rest = build(source, BuildOptions(language_only=True, media_embeds=True))
    assert not any("vision_tower" in each.program_text for each in rest.encoders)
    assert rest.takes_media and not rest.encodes_media and not rest.embeds_width


ROWS = np.zeros((9, 96), np.float32)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"image_embeds": ROWS[:, :5]}, "rows of embeddings have 5 numbers; those of this model"),
        ({"image_embeds": ROWS[:8]}, "there are 8 rows of embeddings; media of this model have 9"),
        ({"image_embeds": ROWS[0]}, r"embeddings have the shape \[96\]; they must be"),
        ({"image_embeds": ROWS[:0]}, "they must be"),
        ({"image_embeds": ROWS * np.nan}, "image 0 has embeddings that are not finite"),
        ({"image_embeds": "abc"}, "could not convert"),
        ({"image_embeds": ROWS, "grid": (1, 2, 3)}, "a mapping has the embeddings"),
        ({"audio_embeds": ROWS}, "a mapping has the embeddings of an image or audio, as image_em"),
        ({"image_embeds": ROWS, "shape": (3, 0, 24)}, "`shape` must be 1 to 4 positive numbers"),
        ({"image_embeds": ROWS, "shape": (2**13,) * 2}, "67108864 values are too large"),
        ({"image_embeds": ROWS, "shape": (3, 24, 25)}, r"must be \[3, 24, 24\]"),
        ({"image_embeds": ROWS, "image_grid_thw": (1, 3)}, "`image_grid_thw` must be 3 positive"),
        ({"image_embeds": ROWS, "image_grid_thw": (1, 2, 2.5)}, "must be 3 positive numbers"),
        ({"image_embeds": ROWS, "image_grid_thw": (1, 2, math.inf)}, "must be 3 positive numbers"),
        ({"image_embeds": ROWS[:8], "shape": (3, 24, 24)}, "media of this shape have 9"),
    ],
)
def test_rows_that_do_not_fit(
    llava_model: MediaTestModel, given: dict[str, Any], words: str
) -> None:
    with llava_model.llm(enable_mm_embeds=True) as llm:
        llava_model.check_refused(llm, IMAGE, [given], words)


def test_grids_that_do_not_fit(tmp_path: Path) -> None:
    model, rows = image_model("qwen2_vl", tmp_path), np.zeros((9, 64), np.float32)
    with model.llm(enable_mm_embeds=True, language_model_only=True) as llm:
        for given, words in (
            ({}, "`image_embeds` of this model need `shape` or `image_grid_thw`, too"),
            ({"image_grid_thw": (1, 6, 5)}, "image 0: "),
            ({"image_grid_thw": (1, 6, 4)}, "9 rows of embeddings; media of this shape have 6"),
            ({"image_grid_thw": (1, 2**14, 2**14)}, "are too large"),
            ({"image_grid_thw": (1, 600, 500)}, "9 rows of embeddings, and 300000 patches"),
            ({"image_grid_thw": (1, 6, 6), "shape": (36, 5)}, "image 0: "),
        ):
            model.check_refused(llm, IMAGE, [{"image_embeds": rows, **given}], words)
        model.check_refused(llm, IMAGE, [PATCHES[0]], "no encoder is loaded: give its embeddings")
        # More rows than a step has are refused by the engine.
        many = {"image_embeds": np.zeros((100, 64), np.float32), "image_grid_thw": (1, 20, 20)}
        model.check_refused(llm, IMAGE, [many], "at most 64 rows")


def test_options_that_exclude_each_other(llava_model: MediaTestModel, tmp_path: Path) -> None:
    with llava_model.llm() as llm:
        llava_model.check_refused(llm, IMAGE, [{"image_embeds": ROWS}], "--enable-mm-embeds alone")
        with pytest.raises(EngineError, match="needs mm_encoder_only=True"):
            llm.encode_media("image", LLAVA)
    with llava_model.llm(mm_encoder_only=True) as llm:
        with pytest.raises(EngineError, match="does not generate text"):
            llm.generate("t20")
        with pytest.raises(EngineError, match="this model takes no audios"):
            llm.encode_media("audio", [audio(1, 5000)])
        with pytest.raises(EngineError, match="videos are encoded by servers with the language"):
            llm.encode_media("video", [])  # pyright: ignore[reportArgumentType]
    ernie_vl(tmp_path / "ernie")
    whisper(tmp_path / "whisper")
    make("llama", tmp_path / "llama")
    both = {"prompt_embeds": True, "language_only": True}
    for path, more, words in (
        (tmp_path / "ernie", {}, "has tokens beside media that its encoder computes"),
        (tmp_path / "whisper", {}, "has an encoder that its decoder attends to: leave out"),
        (tmp_path / "llama", {}, "takes no media"),
        (llava_model.path, {"refused_media": frozenset({"image"})}, "allows none"),
        (llava_model.path, both, "--enable-prompt-embeds and --enable-mm-embeds exclude"),
        (llava_model.path, both | {"encoder_only": True, "media_embeds": False}, "leave out --ta"),
        (llava_model.path, {"encoder_only": True}, "--enable-mm-embeds and adapters"),
    ):
        with pytest.raises(ModelConfigError, match=words):
            build(ModelSource.open(path), BuildOptions(**({"media_embeds": True} | more)))
        if not more:
            with pytest.raises(ModelConfigError, match="leave out --mm-encoder-only"):
                build(ModelSource.open(path), BuildOptions(encoder_only=True))
