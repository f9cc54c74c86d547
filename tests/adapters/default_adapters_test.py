"""Adapters that requests have by their media: those of a checkpoint, and `default_mm_loras`. Each
output has the tokens that `transformers` makes with the adapter active, or disabled."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.llm import LLM, Output
from pagemill.engine.model_plan import plan_model
from pagemill.engine.outputs import EngineError
from pagemill.models.audio.log_mel import HOP
from peft import PeftModel

from tests.adapters.peft_adapters import NAMES, with_adapters
from tests.media.audio_models import PLACEHOLDER, audio
from tests.media.granite_speech_models import granite_speech
from tests.media.media_model import MediaTestModel, text
from tests.media.phi4_models import AUDIO_PLACEHOLDER, image, phi4_with_both
from tests.media.phi4_models import PLACEHOLDER as IMAGE_PLACEHOLDER
from tests.media.qwen_vl_models import image as patches
from tests.media.video_models import placeholder, video, video_model

pytestmark = pytest.mark.filterwarnings("ignore")

SOUND = audio(1, 40 * HOP)
HEARD = text(1, 3) + [PLACEHOLDER] + text(2, 5)
PLAIN = text(3, 20)
FUSED = r"model\.layers\.\d+\..*\.(qkv_proj|o_proj|gate_up_proj|down_proj)"


@dataclass(frozen=True)
class Adapted:
    """A model whose checkpoint has adapters, and its reference with them."""

    model: MediaTestModel
    reference: PeftModel

    @property
    def path(self) -> Path:
        return self.model.path

    def check(self, output: Output, media: Sequence[Any], adapter: str) -> None:
        """The output is that of the reference with this adapter active; "": with none."""
        if not adapter:
            with self.reference.disable_adapter():
                self.model.check(output, media)
            return
        self.reference.set_adapter(adapter)
        self.model.check(output, media)

    def answer(
        self, llm: LLM, prompt: list[int], media: Sequence[Any], adapter: str = ""
    ) -> Output:
        (output,) = self.model.generate(llm, [prompt], [media], adapter=adapter, logprobs=0)
        return output


@contextmanager
def _opened(adapted: Adapted, **options: Any) -> Iterator[LLM]:
    with adapted.model.llm(max_num_seqs=8, **options) as llm:
        yield llm


@pytest.fixture(scope="module", name="granite")
def _granite(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """With the adapter "default" in its own folder, and another one."""
    path = tmp_path_factory.mktemp("granite_speech")
    reference, model = granite_speech(path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"has_lora_adapter": True}))
    return Adapted(model, with_adapters(reference, path, ["default", "other"]))


def _tokens(output: Output) -> list[int]:
    return output.choices[0].token_ids


def test_granite_speech_hears_under_its_adapter(granite: Adapted) -> None:
    """In the steps of texts, which have none."""
    prompts = [HEARD, PLAIN, [PLACEHOLDER, *text(4, 4), PLACEHOLDER], PLAIN[:7]]
    audios = [[SOUND], [], [audio(2, 3000), audio(3, 5000)], []]
    with _opened(granite) as llm:
        outputs = granite.model.generate(llm, prompts, audios, logprobs=0)
        (loaded,) = llm.adapters.adapters()
        named = granite.answer(llm, PLAIN, [], adapter="audio")
    for output, own in zip(outputs, audios, strict=True):
        granite.check(output, own, "default" if own else "")
    granite.check(named, [], "default")
    assert _tokens(named) != _tokens(outputs[1])
    assert (loaded["name"], loaded["path"]) == ("audio", str(granite.path))
    with _opened(granite, default_mm_loras={}) as llm:
        deaf = granite.answer(llm, HEARD, [SOUND])
        with pytest.raises(EngineError, match="enable_lora"):
            _ = llm.adapters
    granite.check(deaf, [SOUND], "")
    assert _tokens(deaf) != _tokens(outputs[0])


def test_a_request_has_the_adapter_that_it_names(granite: Adapted) -> None:
    with _opened(granite, lora_modules=[f"other={granite.path / 'other'}"]) as llm:
        named = granite.answer(llm, HEARD, [SOUND], adapter="other")
        own = granite.answer(llm, HEARD, [SOUND])
    granite.check(named, [SOUND], "other")
    granite.check(own, [SOUND], "default")
    assert _tokens(named) != _tokens(own)


def test_ranks_divide_the_adapter(granite: Adapted) -> None:
    with _opened(granite, tensor_parallel_size=2, max_num_batched_tokens=32) as llm:
        outputs = granite.model.generate(llm, [HEARD, PLAIN], [[SOUND], []], logprobs=0)
    granite.check(outputs[0], [SOUND], "default")
    granite.check(outputs[1], [], "")


def test_prefixes_are_apart(granite: Adapted) -> None:
    """The text in front of audio was computed under the adapter, and with it alone is found."""
    beginning = text(5, 40)
    heard, plain = [*beginning, PLACEHOLDER, *text(6, 3)], [*beginning, *text(7, 9)]
    asked = [("", heard), ("", plain), ("", heard), ("audio", plain), ("", plain)]
    cached: list[int] = []
    with _opened(granite, default_mm_loras={"audio": str(granite.path)}) as llm:
        for name, prompt in asked:
            own = [SOUND] if prompt is heard else []
            output = granite.answer(llm, prompt, own, adapter=name)
            granite.check(output, own, "default" if own or name else "")
            cached.append(output.num_cached_tokens)
    assert cached == [0, 0, 48, 32, 48]


def test_what_the_operator_does_to_it(granite: Adapted) -> None:
    with _opened(granite) as llm:
        replaced = llm.adapters.load_adapter("audio", str(granite.path / "other"), True)
        assert replaced["rank"] == 3
        granite.check(granite.answer(llm, HEARD, [SOUND]), [SOUND], "other")
        llm.adapters.unload_adapter("audio")
        with pytest.raises(EngineError, match="`audio`, which has been unloaded") as refused:
            granite.answer(llm, HEARD, [SOUND])
        assert refused.value.code == "UNAVAILABLE"
        granite.check(granite.answer(llm, PLAIN, []), [], "")
        llm.adapters.load_adapter("audio", str(granite.path))
        granite.check(granite.answer(llm, HEARD, [SOUND]), [SOUND], "default")


def test_phi4_has_one_for_images_and_one_for_audio(tmp_path: Path) -> None:
    reference, images, sounds = phi4_with_both(tmp_path)
    names = ["vision-lora", "speech-lora"]
    peft = with_adapters(reference, tmp_path, names, target_modules=FUSED)
    seeing, hearing = Adapted(images, peft), Adapted(sounds, peft)
    look = text(1, 3) + [IMAGE_PLACEHOLDER] + text(2, 5)
    hear = text(1, 3) + [AUDIO_PLACEHOLDER] + text(2, 5)
    picture = image(1, 4, 5)
    with _opened(seeing) as llm:
        seen, plain = seeing.model.generate(llm, [look, PLAIN], [[picture], []], logprobs=0)
        heard = hearing.answer(llm, hear, [SOUND])
        with pytest.raises(EngineError, match="reads audios of a prompt without other media"):
            llm.generate([look + hear], images=[[picture]], audios=[[SOUND]])
        assert [each["name"] for each in llm.adapters.adapters()] == ["image", "audio"]
        # What they would have been without.
        blind = seeing.answer(llm, PLAIN, [], adapter="image")
        deaf = seeing.answer(llm, PLAIN, [], adapter="audio")
    seeing.check(seen, [picture], "vision-lora")
    seeing.check(plain, [], "")
    hearing.check(heard, [SOUND], "speech-lora")
    assert len({tuple(_tokens(each)) for each in (plain, blind, deaf)}) == 3
    with _opened(seeing, limit_mm_per_prompt={"audio": 0}) as llm:
        assert [each["name"] for each in llm.adapters.adapters()] == ["image"]


def test_of_several_kinds_the_first_that_is_listed(tmp_path: Path) -> None:
    model = video_model("qwen2_vl", tmp_path)
    reference: Any = model.reference
    peft = with_adapters(reference._model, tmp_path)
    adapted = Adapted(model, peft)
    prompt = placeholder("qwen2_vl") + text(1, 4) + [3] + text(2, 5)
    clip, picture = video(1, 2, 4, 6), patches(1, 6, 6)
    found: list[list[int]] = []
    for kinds in (("image", "video"), ("video", "image")):
        folders = {kind: str(tmp_path / name) for kind, name in zip(kinds, NAMES, strict=True)}
        with _opened(adapted, default_mm_loras=folders) as llm:
            both, alone = model.generate(
                llm,
                [prompt, [3, *text(1, 4)]],
                [[clip], []],
                images=[[picture], [picture]],
                logprobs=0,
            )
        adapted.check(both, [clip, picture], "first")
        adapted.check(alone, [picture], NAMES[kinds.index("image")])
        found.append(_tokens(both))
    assert found[0] == found[1]


def _config(path: Path, **options: Any) -> EngineConfig:
    sizes = {"max_model_len": 200, "max_num_batched_tokens": 64, "pack_cache": False}
    return build(EngineConfig, {"model": str(path), **sizes, **options})


def test_the_plan_counts_it(granite: Adapted) -> None:
    configs = _config(granite.path), _config(granite.path, default_mm_loras={})
    own, without = map(plan_model, configs)
    with _opened(granite) as llm:
        (loaded,) = llm.adapters.adapters()
    assert own.adapter_bytes == loaded["bytes"]
    assert own.fixed >= without.fixed + own.adapter_bytes
    described = own.as_json()
    assert described["media_adapters"] == {"audio": {"path": str(granite.path), "rank": 2}}
    assert described["bytes"]["adapters"] == own.adapter_bytes
    assert without.as_json()["media_adapters"] == {}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"executor": "torch"}, r"--default-mm-loras \{\} .* need --executor native"),
        (
            {"pipeline_parallel_size": 2},
            r"--default-mm-loras \{\} .* cannot be used with --pipeline-parallel-size 2",
        ),
        ({"default_mm_loras": {"image": "x"}}, "takes no image, only text and audio; leave image"),
        ({"default_mm_loras": {"audio": "nowhere"}}, "--default-mm-loras: the adapter for audio"),
        ({"default_mm_loras": {"sound": "x"}}, "--default-mm-loras: 'sound'"),
        ({"default_mm_loras": {"audio": ""}}, "--default-mm-loras: 'audio': ''"),
        ({"lora_modules": ["audio=x"]}, "'audio' is the name of the adapter of requests with"),
        ({"lora_modules": ["a=x"], "max_cpu_loras": 1}, "have 2 adapters, more than"),
    ],
)
def test_what_is_refused(granite: Adapted, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        granite.model.llm(**options).__enter__()


def test_a_model_without_the_adapter_says_so(
    granite: Adapted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(granite.path / name, tmp_path / name)
    with caplog.at_level(logging.WARNING, "pagemill.engine"):
        bare = Adapted(type(granite.model)(tmp_path, granite.model.reference), granite.reference)
        with _opened(bare) as llm:
            bare.check(bare.answer(llm, HEARD, [SOUND]), [SOUND], "")
    assert "requests with audio run without one" in caplog.text
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="the adapter for audio cannot be used"):
        bare.model.llm().__enter__()
    with bare.model.llm(language_model_only=True) as llm:
        bare.check(bare.answer(llm, PLAIN, []), [], "")
