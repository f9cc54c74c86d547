"""Adapters of PEFT that change encoders: towers and projectors of images, and both halves of
encoder-decoders. Several of them and the model itself share batches, each with the tokens that PEFT
makes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from pagemill.engine.outputs import EngineError
from safetensors.torch import load_file, save_file
from transformers import WhisperForConditionalGeneration

from tests.adapters.adapted_media import IMAGE, Adapted, adapted, check_batch
from tests.adapters.peft_adapters import NAMES, with_adapters
from tests.media import encoder_decoder_models
from tests.media.media_model import encoded, text
from tests.media.whisper_models import AUDIO, FRONT, recording, whisper, with_reference

_FILE = "adapter_model.safetensors"
# The linear layers of Qwen's and GLM's towers; what cuts patches is a convolution.
_TOWER = r".*visual\.(blocks|merger|deepstack_merger_list)\..*(qkv|attn\.proj|fc\d|mlp\.\d|_proj)"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted("llava", tmp_path_factory.mktemp("llava"), target_modules="all-linear")


def test_all_linear_layers(llava: Adapted) -> None:
    """Of CLIP's last layer, which is not computed, they change nothing."""
    check_batch(llava)


# PEFT's names of all linear layers, and those of the tower alone.
@pytest.mark.parametrize(
    ("family", "layers"),
    [("qwen2_vl", "all-linear"), ("qwen3_vl_moe", _TOWER), ("glm4v", _TOWER)],
)
def test_towers_of_images_of_any_size(family: str, layers: str, tmp_path: Path) -> None:
    check_batch(adapted(family, tmp_path, target_modules=layers, spread=0.1))


def test_rank_0_has_the_encoder(tmp_path: Path) -> None:
    made = adapted("qwen2_vl", tmp_path, target_modules="all-linear")
    check_batch(made, tensor_parallel_size=2, max_num_batched_tokens=13)


def test_lengths_are_those_of_the_towers_weights(tmp_path: Path) -> None:
    check_batch(adapted("llava", tmp_path, target_modules="all-linear", use_dora=True))


def test_each_adapter_encodes_an_image_anew(llava: Adapted) -> None:
    """Once it is loaded again, too."""
    own = [llava.images[0]]
    with llava.model.llm(enable_lora=True) as llm:
        llava.load(llm)
        for number, adapter in enumerate(("first", "second", "", "first", "")):
            prompt = text(number, 10) + IMAGE + text(2, 20)
            (output,) = llava.model.generate(llm, [prompt], [own], adapter=adapter)
            llava.check(output, own, adapter)
        assert encoded(llm) == 3
        llm.adapters.load_adapter("first", str(llava.path / "second"), load_inplace=True)
        (output,) = llava.model.generate(llm, [IMAGE + text(8, 9)], [own], adapter="first")
        llava.check(output, own, "second")
        assert encoded(llm) == 4


def test_names_of_towers_of_earlier_versions(llava: Adapted, tmp_path: Path) -> None:
    """`transformers` has had one more module around CLIP's layers."""
    tensors = load_file(llava.path / "first" / _FILE)
    older = {
        name.replace("model.model.vision_tower.", "model.vision_tower.vision_model."): tensor
        for name, tensor in tensors.items()
    }
    assert older.keys() != tensors.keys()
    save_file(older, tmp_path / _FILE)
    config = "adapter_config.json"
    (tmp_path / config).write_bytes((llava.path / "first" / config).read_bytes())
    own = [llava.images[0]]
    with llava.model.llm(enable_lora=True) as llm:
        llm.adapters.load_adapter("first", str(tmp_path))
        (output,) = llava.model.generate(llm, [IMAGE + text(1, 9)], [own], adapter="first")
        llava.check(output, own, "first")


def test_convolutions_are_refused(tmp_path: Path) -> None:
    made = adapted("qwen2_vl", tmp_path, target_modules=r".*visual\.patch_embed\.proj")
    with (
        made.model.llm(enable_lora=True) as llm,
        pytest.raises(EngineError, match=r"patch_embed\.proj is no matrix"),
    ):
        llm.adapters.load_adapter("first", str(tmp_path / "first"))


@pytest.mark.parametrize("options", [{}, {"tensor_parallel_size": 2, "max_num_batched_tokens": 23}])
def test_both_halves_of_whisper(options: dict[str, int], tmp_path: Path) -> None:
    """Its decoder computes rows of text alone."""
    whisper(tmp_path)
    reference = WhisperForConditionalGeneration.from_pretrained(tmp_path)
    layers = r".*\.(k_proj|q_proj|v_proj|out_proj|fc1|fc2)"
    adapters = with_adapters(reference, tmp_path, target_modules=layers)
    made = Adapted(with_reference(tmp_path, reference), adapters, tmp_path, [])
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3), AUDIO + text(3, 5)]
    audios = [[recording(1)], [recording(2)], [recording(1)]]
    found: set[tuple[int, ...]] = set()
    with made.model.llm(enable_lora=True, max_model_len=FRONT + 90, **options) as llm:
        made.load(llm)
        for adapter in ("", *NAMES):
            outputs = made.model.generate(llm, prompts, audios, adapter=adapter)
            for output, own in zip(outputs, audios, strict=True):
                made.check(output, own, adapter)
                found.add(tuple(output.choices[0].token_ids))
        if not options:  # steps this small keep no recording for the next request
            assert encoded(llm) == 6, "each adapter hears two recordings"
    assert len(found) > 6, "adapters change tokens, or nothing was tested"


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_both_halves_of_encoder_decoders_of_text(family: str, tmp_path: Path) -> None:
    reference = encoder_decoder_models.saved(tmp_path, family)
    adapters = with_adapters(reference, tmp_path, target_modules="all-linear", spread=0.1)
    model = encoder_decoder_models.with_reference(tmp_path, reference)
    prompts = [text(1, 11), text(2, 4)]
    first: set[float] = set()
    with model.llm(enable_lora=True, max_model_len=150) as llm:
        for name in NAMES:
            llm.adapters.load_adapter(name, str(tmp_path / name))
        for adapter in ("", *NAMES):
            adapters.set_adapter(adapter or "first")
            for output, own in zip(
                model.generate_texts(llm, prompts, adapter=adapter, logprobs=0),
                prompts,
                strict=True,
            ):
                logprobs = output.choices[0].logprobs
                assert logprobs is not None
                first.add(logprobs[0].logprob)
                with nullcontext() if adapter else adapters.disable_adapter():
                    model.check(output, own)  # type: ignore[arg-type]
    assert len(first) == 6, "adapters change tokens, or nothing was tested"
