"""Images in rows of tokens through the engine: the tokens of Pixtral and Mistral 3 are those of
`transformers`, and so are the ends of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.media import MediaFrontEnd, place_media
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import (
    LightOnOcrConfig,
    LightOnOcrForConditionalGeneration,
    Ministral3Config,
    Mistral4Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from tests.media.media_model import MediaTestModel, encoded, media_prompts, newer_name, text
from tests.parity.tiny_models import (
    PIXTRAL_PLACEHOLDER,
    PIXTRAL_WORDS,
    TEXT_SIZES,
    make,
    mistral3,
    pixtral,
    pixtral_vision,
    save,
)

IMAGE = [PIXTRAL_PLACEHOLDER]
BREAK, END = 4, 5
UNIT = {"pixtral": 4, "mistral3": 8}  # pixels of a token


def image(seed: int, height: int, width: int) -> np.ndarray:
    """Pixels."""
    return np.random.default_rng(seed).normal(size=(3, height, width)).astype(np.float32)


SQUARE, WIDE, TALL, SMALL = image(1, 24, 24), image(2, 16, 40), image(3, 32, 8), image(4, 8, 8)


def padded(images: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    """The inputs of `transformers`: images of one size, and their own sizes."""
    sizes = [each.shape[1:] for each in images]
    height, width = np.max(sizes, axis=0)
    pixels = np.zeros((len(images), 3, height, width), np.float32)
    for row, each in zip(pixels, images, strict=True):
        row[:, : each.shape[1], : each.shape[2]] = each
    return {"pixel_values": torch.tensor(pixels), "image_sizes": torch.tensor(sizes)}


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        inputs = padded(images) if images else {}
        with torch.inference_mode():
            return reference(torch.tensor([ids]), use_cache=False, **inputs).logits[0]

    return MediaTestModel(path, logits, PIXTRAL_WORDS)


@pytest.fixture(scope="module", params=sorted(UNIT))
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    path = tmp_path_factory.mktemp(request.param)
    return image_model(path, make(request.param, path))


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("mistral3")
    return image_model(path, make("mistral3", path))


PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE + text(8, 1) + IMAGE,
]
IMAGES = [[SQUARE, WIDE], [TALL], [], [SMALL, WIDE, SQUARE]]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor, max_num_batched_tokens=128) == 4, (
        "equal images are encoded once"
    )


@pytest.mark.parametrize("name", sorted(UNIT))
def test_rows_have_ends(name: str, tmp_path: Path) -> None:
    model = image_model(tmp_path, make(name, tmp_path))
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[WIDE]])
    rows, columns = (side // UNIT[name] for side in WIDE.shape[1:])
    row = IMAGE * columns
    expected = (row + [BREAK]) * (rows - 1) + row + [END]
    assert output.prompt_token_ids == [20, *expected, 21]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_lighton_ocr_has_no_ends_of_rows(executor: str, tmp_path: Path) -> None:
    config = LightOnOcrConfig(
        vision_config=pixtral_vision(),
        text_config=Qwen3Config(**TEXT_SIZES, head_dim=16, tie_word_embeddings=True),
        image_token_id=PIXTRAL_PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = image_model(tmp_path, save(LightOnOcrForConditionalGeneration(config), tmp_path))
    with model.llm(executor=executor, max_num_batched_tokens=128) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            model.check(output, own)
            tokens = sum(image.shape[1] * image.shape[2] // 64 for image in own)
            assert output.prompt_token_ids.count(PIXTRAL_PLACEHOLDER) == tokens
            assert BREAK not in output.prompt_token_ids and END not in output.prompt_token_ids
    if executor == "native":
        model.check_language_model_only("vision_encoder.", SQUARE)
        model.check_divided()


@pytest.mark.parametrize("step", [14, 15, 19, 23])
def test_steps_may_end_inside_an_image(merging: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [WIDE, SQUARE]
    with merging.llm(max_num_batched_tokens=step) as llm:
        (output,) = merging.generate(llm, [prompt], [images], logprobs=0)
        merging.check(output, images)


def test_prefixes_are_those_of_equal_images(merging: MediaTestModel) -> None:
    """Equal patches in other rows are another image."""
    prompt = text(1, 10) + IMAGE + text(2, 40)
    one = np.ones((3, 16, 32), np.float32)
    with merging.llm() as llm:
        cached = []
        for own in (one, one.reshape(3, 32, 16), one):
            (output,) = merging.generate(llm, [prompt], [[own]])
            merging.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached[:2] == [0, 0] and cached[2] >= 48
        assert encoded(llm) == 2, "tokens of a cached prefix need no embeddings"


_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_TEXTS: dict[str, PreTrainedConfig] = {
    "ministral3": Ministral3Config(
        **TEXT_SIZES,
        rope_parameters=_ROPE
        | {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16},
    ),
    "mistral4": Mistral4Config(
        **(TEXT_SIZES | {"num_key_value_heads": 6}),
        q_lora_rank=32,
        kv_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        v_head_dim=16,
        head_dim=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=40,
        n_group=1,
        topk_group=1,
        rope_parameters=_ROPE
        | {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16},
    ),
}


@pytest.mark.parametrize("kind", sorted(_TEXTS))
def test_other_language_models(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = image_model(tmp_path, save(mistral3(_TEXTS[kind]), tmp_path))
    with model.llm() as llm:
        outputs = model.generate(llm, PROMPTS[:2], IMAGES[:2], logprobs=0)
        for output, own in zip(outputs, IMAGES[:2], strict=True):
            model.check(output, own)


VARIANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "pixtral": (pixtral, {}),
    "inner layer": (pixtral, {"vision_feature_layer": -2}),
    "several layers": (pixtral, {"vision_feature_layer": [1, -1]}),
    "mistral3": (mistral3, {}),
    "squares of 1": (mistral3, {"merge": 1}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_encoders_of_both_executors(variant: str, tmp_path: Path) -> None:
    from pagemill import _native

    maker, changes = VARIANTS[variant]
    torch.manual_seed(0)
    reference = save(maker(**changes), tmp_path)
    images = [SQUARE, WIDE, TALL]
    with torch.inference_mode():
        found = reference.get_image_features(**padded(images)).pooler_output
        expected = torch.cat(list(found)).numpy()
    (encoder,) = build(ModelSource.open(tmp_path), BuildOptions()).encoders
    items = [encoder.features(PreparedMedia("image", each)) for each in images]
    sizes = [len(item.rows) for item in items]
    ends = np.cumsum([0, *sizes]).astype(np.int32)
    tokens = np.arange(ends[-1], dtype=np.int32)
    batch = {
        "token_ids": tokens * 0,
        "positions": np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
        "query_start": ends,
        "seq_lens": np.array(sizes, np.int32),
        "logits_rows": tokens[:0],
        "media_rows": tokens[:: encoder.traits.rows],
        "grid_positions": np.concatenate([item.positions.rows for item in items if item.positions]),
        "kv": [],
        "inputs": {"features": np.concatenate([item.rows for item in items])},
    }
    for run in (
        _native.NativeExecutor(
            encoder.program_text, _native.ExecutorOptions(activation_dtype="f32")
        ),
        TorchExecutor(encoder.program_text, TorchOptions()),
    ):
        np.testing.assert_allclose(run(batch)["embeddings"], expected, rtol=0, atol=2e-5)


def test_newer_checkpoints_have_other_names(merging: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(merging.path / "model.safetensors")
    assert "language_model.model.norm.weight" in tensors
    newer = {newer_name(name): tensor for name, tensor in tensors.items()}
    save_file(newer, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((merging.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert "model.vision_tower." in built.encoders[0].program_text
    assert "model.language_model.norm.weight" in built.program_text


def test_images_that_do_not_fit_are_refused(merging: MediaTestModel) -> None:
    with merging.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            merging.check_refused(llm, IMAGE, images, message)

        refuse(r"image 0: an image must be \[3, height, width\], got \[16, 40\]", WIDE[0])
        refuse(r"must be multiples of 8, got \[16, 36\]", WIDE[:, :, :36])
        refuse(r"must be multiples of 8, got \[0, 40\]", WIDE[:, :0])
        refuse("an array of pixels, without a grid", (WIDE, (1, 2, 5)))
        refuse("image 0 has pixels that are not finite", WIDE * np.nan)
        refuse("takes at most 256 rows of 48 channels", image(1, 8, 8 * 65))
        refuse("at most 64 are encoded in a step", image(1, 8 * 64, 8))
        (output,) = merging.generate(llm, [IMAGE + text(1, 3)], [[SQUARE]])
        merging.check(output, [SQUARE])


def test_a_tokenizer_without_ends_of_rows(tmp_path: Path) -> None:
    make("mistral3", tmp_path)
    front_ends = MediaFrontEnd.of(ModelSource.open(tmp_path))
    with pytest.raises(EngineError, match=r"\[IMG_END\] is no token"):
        media = [PreparedMedia("image", SQUARE)]
        place_media(
            RenderedPrompt.of(IMAGE), media, front_ends, lambda name: [ord(c) for c in name]
        )


def test_ranks_get_the_embeddings_of_images(merging: MediaTestModel) -> None:
    with merging.llm(tensor_parallel_size=2, max_num_batched_tokens=30) as llm:
        for output, own in zip(merging.generate(llm, PROMPTS, IMAGES), IMAGES, strict=True):
            merging.check(output, own)


def test_ranks_and_stages_of_text(merging: MediaTestModel) -> None:
    merging.check_divided()
