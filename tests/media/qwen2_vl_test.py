"""Images of several sizes through the engine: Qwen2-VL's tokens are those of `transformers`, with
positions in three dimensions, regardless of preemption and caching."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.media.qwen_vl_models import image, image_model
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER, make

IMAGE = [QWEN2_VL_PLACEHOLDER]
SQUARE, WIDE, TALL, SMALL = image(1, 6, 6), image(2, 4, 10), image(3, 8, 2), image(4, 2, 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("qwen2_vl")
    return image_model(path, make("qwen2_vl", path))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    prompts = [
        *media_prompts(IMAGE),
        text(6, 7) + IMAGE + text(7, 1) + IMAGE + text(8, 1) + IMAGE,
    ]
    images = [[SQUARE, WIDE], [TALL], [], [SMALL, WIDE, SQUARE]]
    assert model.check_all(prompts, images, executor=executor) == 4, "equal images are encoded once"


def test_language_model_only(model: MediaTestModel) -> None:
    model.check_language_model_only("visual.", SQUARE)


@pytest.mark.parametrize("step", [10, 13, 17])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [WIDE, SQUARE]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    """Equal patches in another grid are another image."""
    prompt = text(1, 10) + IMAGE + text(2, 40)
    turned = (WIDE[0], (1, 10, 4))
    with model.llm() as llm:
        cached = []
        for own in (WIDE, turned, WIDE):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 48]
        assert encoded(llm) == 2, "tokens of a cached prefix need no embeddings"


def test_preempted_requests_keep_their_positions(model: MediaTestModel) -> None:
    prompts = [text(i, 40) + IMAGE + text(i + 9, 30) for i in range(4)]
    images = [[image(i, 4, 4 + 2 * i)] for i in range(4)]
    page = 2 * 2 * 16 * 16 * 4 * 3  # bytes: keys and values of three layers
    options = {"max_model_len": 96, "kv_cache_memory_bytes": f"{page * 11}B", "max_step_ms": 0}
    with model.llm(**options) as llm:
        outputs = model.generate_together(llm, prompts, images)
        for output, own in zip(outputs, images, strict=True):
            model.check(output, own)
        assert llm._engine.stats().num_preemptions > 0


def test_sessions_keep_their_positions(model: MediaTestModel, tmp_path: Path) -> None:
    """A session saves only text, whose positions have one dimension."""
    prompt = text(1, 50)
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [[]])
        model.check(output, [])
        saved = llm.save_session(str(tmp_path / "session"), output.prompt_token_ids)
        assert saved == 48
    with model.llm() as llm:
        session = llm.restore_session(str(tmp_path / "session"))
        (output,) = model.generate(llm, [session.token_ids + text(2, 3)], [[]])
        assert output.num_cached_tokens == 48
        model.check(output, [])


def test_drafts_behind_an_image(model: MediaTestModel) -> None:
    """Drafts have the positions of the tokens that they predict."""
    prompt = text(2, 4) + IMAGE + list(range(5, 257))  # so that any token has a follower
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
    with model.llm(speculative_config=drafts, max_model_len=320) as llm:
        (output,) = model.generate(llm, [prompt], [[WIDE]])
        model.check(output, [WIDE])
        assert llm._engine.stats().draft_tokens > 0


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()


def test_ranks_get_embeddings_and_positions(model: MediaTestModel) -> None:
    prompts = [
        text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
        text(5, 30),
        IMAGE + text(4, 4),
    ]
    images = [[SQUARE, WIDE], [], [TALL]]
    model.check_all(prompts, images, tensor_parallel_size=2, max_num_batched_tokens=13)


def test_encoders_of_both_executors(model: MediaTestModel) -> None:
    from pagemill import _native

    (encoder,) = build(ModelSource.open(model.path), BuildOptions()).encoders
    items = [encoder.features(PreparedMedia("image", *each)) for each in (SQUARE, TALL)]
    sizes = [len(item.rows) for item in items]
    ends = np.cumsum([0, *sizes]).astype(np.int32)
    tokens = np.arange(ends[-1], dtype=np.int32)
    grids = [item.positions.rows for item in items if item.positions is not None]
    batch = {
        "token_ids": tokens * 0,
        "positions": np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
        "query_start": ends,
        "seq_lens": np.array(sizes, np.int32),
        "logits_rows": tokens[:0],
        "media_rows": tokens[::4],
        "grid_positions": np.concatenate(grids),
        "kv": [],
        "inputs": {"features": np.concatenate([item.rows for item in items])},
    }
    native = _native.NativeExecutor(
        encoder.program_text, _native.ExecutorOptions(activation_dtype="f32")
    )
    expected = TorchExecutor(encoder.program_text, TorchOptions())(batch)["embeddings"]
    assert len(expected) == sum(item.tokens for item in items) == 13
    np.testing.assert_allclose(native(batch)["embeddings"], expected, rtol=0, atol=2e-5)
    del batch["grid_positions"]
    with pytest.raises(_native.StatusError, match="a step without grid_positions"):
        native(batch)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: object) -> None:
            model.check_refused(llm, IMAGE, images, message)

        patches = SQUARE[0]
        refuse("image 0: an image of this model has a grid", patches)
        refuse(
            r"the grid of an image must be 1, and two multiples of 2, got \[1, 5, 7\]",
            (patches, (1, 5, 7)),
        )
        refuse(r"got \[2, 6, 6\]", (patches, (2, 6, 6)))
        refuse(r"patches must be \[24, 96\], got \[36, 96\]", (patches, (1, 6, 4)))
        refuse("takes at most 256 rows of 96 channels", image(1, 2, 130))
        (output,) = model.generate(llm, [IMAGE + text(1, 3)], [[SQUARE]])
        model.check(output, [SQUARE])


def test_configurations_of_hubs_have_the_language_model_in_their_own_keys(
    model: MediaTestModel, tmp_path: Path
) -> None:
    config = json.loads((model.path / "config.json").read_text())
    text_config = config.pop("text_config")
    rope = text_config.pop("rope_parameters")
    sections = rope["mrope_section"]
    older = (
        text_config
        | config
        | {
            "rope_theta": rope["rope_theta"],
            "rope_scaling": {"type": "mrope", "mrope_section": sections},
        }
    )
    weights = (model.path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights)

    (tmp_path / "config.json").write_text(json.dumps(older))
    program = build(ModelSource.open(tmp_path), BuildOptions()).program_text
    newer = build(ModelSource.open(model.path), BuildOptions()).program_text
    assert program.replace(str(tmp_path), str(model.path)) == newer
