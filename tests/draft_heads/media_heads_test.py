"""Heads of models with images: greedy tokens are those without drafts, and a head that computes
what its target computes is always right, which it is only with the embeddings and the positions of
images."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.draft_head import build_head, head_states
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from tests.draft_heads.dflash_checkpoints import make_dflash
from tests.draft_heads.eagle_checkpoints import make_eagle, make_eagle3
from tests.draft_heads.head_run import KINDS, TOLERANCE, error, executor
from tests.media.media_model import Item, MediaTestModel, text
from tests.media.qwen_vl_models import MAKERS, image
from tests.parity.tiny_models import LLAVA_IMAGE, make, save

IMAGE = [3]  # the placeholder of these models
_TENSORS, _CONFIG = "model.safetensors", "config.json"
Tensors = dict[str, torch.Tensor]


def _no_reference(ids: list[int], images: Sequence[Any]) -> torch.Tensor:
    raise NotImplementedError


def _llava(path: Path) -> list[Item]:
    make("llava", path)
    random = np.random.default_rng(1)
    return [random.normal(size=LLAVA_IMAGE).astype(np.float32) for _ in range(2)]


def _grid(family: str) -> Callable[[Path], list[Item]]:
    def made(path: Path) -> list[Item]:
        torch.manual_seed(0)
        save(MAKERS[family](), path)
        return [image(1, 6, 6), image(2, 4, 10)]

    return made


_MODELS: dict[str, Callable[[Path], list[Item]]] = {
    "llava": _llava,
    "qwen2_5_vl": _grid("qwen2_5_vl"),
    "qwen3_5": _grid("qwen3_5"),
    "qwen3_vl": _grid("qwen3_vl"),
}


def _tokens(
    path: Path, images: Sequence[Item], drafts: dict[str, Any], **options: Any
) -> tuple[list[list[int]], int, int]:
    """Outputs of prompts with two images, one and none, and the numbers of drafts and of accepted
    ones."""
    first, second = images
    prompts = [
        text(1, 3) + IMAGE + text(2, 15) + IMAGE + text(3, 2),
        IMAGE + text(4, 3),  # fewer tokens than a head lets wait
        text(5, 30),
        text(6, 40) + IMAGE + text(7, 2),
    ]
    model = MediaTestModel(path, _no_reference)
    config = {"kv_cache_memory_bytes": "8MiB", "speculative_config": drafts, **options}
    with model.llm(**config) as llm:
        outputs = model.generate(llm, prompts, [[first, second], [second], [], [first]])
        stats = llm._engine.stats()
    tokens = [output.choices[0].token_ids for output in outputs]
    return tokens, stats.draft_tokens, stats.accepted_draft_tokens


def _text_config(path: Path) -> Any:
    return AutoConfig.from_pretrained(path).get_text_config()


def _drafts(method: str, path: Path) -> dict[str, Any]:
    return {"method": method, "model": str(path), "num_speculative_tokens": 3}


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
@pytest.mark.parametrize("family", sorted(_MODELS))
def test_greedy_tokens_with_a_head_are_those_without(
    family: str, method: str, tmp_path: Path
) -> None:
    images = _MODELS[family](tmp_path / "target")
    config = _text_config(tmp_path / "target")
    if method == "eagle3":
        config.num_hidden_layers = 7
    head = (make_eagle if method == "eagle" else make_eagle3)(tmp_path / "head", config)
    if method == "eagle3":  # of three layers
        fields = json.loads((head.path / _CONFIG).read_text())
        layers = {"eagle_aux_hidden_state_layer_ids": [1, 2, 2]}
        (head.path / _CONFIG).write_text(json.dumps(fields | layers))
    expected, _, _ = _tokens(tmp_path / "target", images, {})
    drafts = _drafts(method, head.path)
    tokens, drafted, _ = _tokens(tmp_path / "target", images, drafts)
    assert tokens == expected
    assert drafted > 0


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_greedy_tokens_with_dflash_are_those_without(family: str, tmp_path: Path) -> None:
    """It reads the states of an image's tokens, as of others, and no embeddings of them."""
    images = _MODELS[family](tmp_path / "target")
    drafter = make_dflash(tmp_path / "head", _text_config(tmp_path / "target"))
    fields = {**drafter.config, "dflash_config": {"mask_token_id": 4, "target_layer_ids": [0, 1]}}
    (drafter.path / _CONFIG).write_text(json.dumps(fields))
    fc = {"fc.weight": drafter.tensors["fc.weight"][:, : 2 * drafter.config["hidden_size"]]}
    tensors = {name: tensor.contiguous() for name, tensor in (drafter.tensors | fc).items()}
    save_file(tensors, drafter.path / _TENSORS)
    expected, _, _ = _tokens(tmp_path / "target", images, {})
    drafts = _drafts("dflash", drafter.path)
    tokens, drafted, _ = _tokens(tmp_path / "target", images, drafts)
    assert tokens == expected
    assert drafted > 0


def test_a_head_with_masks_is_refused(tmp_path: Path) -> None:
    images = _MODELS["llava"](tmp_path / "target")
    head = make_eagle3(tmp_path / "head", _text_config(tmp_path / "target"), mask=4)
    fields = json.loads((head.path / _CONFIG).read_text())
    layers = {"eagle_aux_hidden_state_layer_ids": [1, 2, 2]}
    (head.path / _CONFIG).write_text(json.dumps(fields | layers))
    drafts = {**_drafts("eagle3", head.path), "parallel_drafting": True}
    with pytest.raises(ModelConfigError, match="use --language-model-only, or another head"):
        _tokens(tmp_path / "target", images, drafts)


def test_ranks_verify_the_drafts_of_a_head(tmp_path: Path) -> None:
    images = _MODELS["qwen2_5_vl"](tmp_path / "target")
    head = make_eagle(tmp_path / "head", _text_config(tmp_path / "target"))
    expected, _, _ = _tokens(tmp_path / "target", images, {})
    drafts = _drafts("eagle", head.path)
    tokens, drafted, _ = _tokens(tmp_path / "target", images, drafts, tensor_parallel_size=2)
    assert tokens == expected
    assert drafted > 0


def test_an_mtp_layer_beside_images(tmp_path: Path) -> None:
    """Qwen3.5's, made of a layer with attention, lies beside the nested language model."""
    images = _MODELS["qwen3_5"](tmp_path)
    tensors = load_file(tmp_path / _TENSORS)
    layer, hidden = "model.language_model.layers.1.", _text_config(tmp_path).hidden_size
    for name in [name for name in tensors if name.startswith(layer)]:
        tensors[f"mtp.layers.0.{name.removeprefix(layer)}"] = tensors[name].clone()
    tensors["mtp.fc.weight"] = torch.randn(hidden, 2 * hidden) / hidden**0.5
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{name}.weight"] = torch.zeros(hidden)
    save_file(tensors, tmp_path / _TENSORS)
    expected, _, _ = _tokens(tmp_path, images, {})
    drafts = {"method": "mtp", "num_speculative_tokens": 2}
    tokens, drafted, _ = _tokens(tmp_path, images, drafts)
    assert tokens == expected
    assert drafted > 0


def _keep_one_layer(path: Path) -> Tensors:
    """The target's language model gets one layer, and a final norm that changes lengths alone;
    returns the tensors of that, by their names behind `layers.0.`."""
    fields = json.loads((path / _CONFIG).read_text())
    fields["text_config"]["num_hidden_layers"] = 1
    if "layer_types" in fields["text_config"]:
        fields["text_config"]["layer_types"] = fields["text_config"]["layer_types"][:1]
    (path / _CONFIG).write_text(json.dumps(fields))
    tensors = load_file(path / _TENSORS)
    parts = {name: name.removeprefix("language_model.").split(".") for name in tensors}
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if parts[name][:2] != ["model", "layers"] or parts[name][2] == "0"
    }
    (norm,) = (name for name in kept if parts[name] == ["model", "norm", "weight"])
    kept[norm].fill_(1)
    save_file(kept, path / _TENSORS)
    return {
        ".".join(parts[name][3:]): tensor
        for name, tensor in kept.items()
        if parts[name][:2] == ["model", "layers"]
    }


def _make_equal_head(path: Path, target: Path) -> None:
    """A head whose second layer is the only one of the target, on embeddings: its first layer adds
    nothing, and the length of its result does not change the most likely token."""
    layer = _keep_one_layer(target)
    own = {f"layers.1.{name}": tensor for name, tensor in layer.items()}
    own |= {f"layers.0.{name}": torch.zeros_like(tensor) for name, tensor in layer.items()}
    del own["layers.0.input_layernorm.weight"]
    config = _text_config(target).to_dict()
    hidden = config["hidden_size"]
    own["fc.weight"] = torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], 1)
    path.mkdir()
    fields = {**config, "num_hidden_layers": 2, "architectures": ["EagleLlamaForCausalLM"]}
    fields.pop("layer_types", None)
    (path / _CONFIG).write_text(json.dumps(fields))
    save_file({name: tensor.contiguous() for name, tensor in own.items()}, path / _TENSORS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_logits_of_an_equal_head_are_the_targets(family: str, kind: str, tmp_path: Path) -> None:
    """Except for the length of a row. An image has tokens 4 to 12 of 20, and takes 3 positions."""
    _MODELS[family](tmp_path / "target")
    _make_equal_head(tmp_path / "head", tmp_path / "target")
    source, path = ModelSource.open(tmp_path / "target"), str(tmp_path / "head")
    built = build(source, BuildOptions(draft_states=head_states("eagle", path)))
    head = build_head("eagle", path, source, built)
    tokens, image_tokens = 20, np.arange(4, 13, dtype=np.int32)
    grid = np.repeat(np.arange(tokens, dtype=np.int32)[:, None], 3, 1)
    grid[4:13] = 4 + np.stack([np.zeros(9), np.arange(9) // 3, np.arange(9) % 3], 1)
    grid[13:] -= 6
    shape = (len(image_tokens), head.draft_media_width)
    media = {"embeddings": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    states = {"draft_states": np.zeros((tokens, head.draft_states_width), np.float32)}
    found: list[np.ndarray] = []
    for program, inputs in ((built.program_text, media), (head.program_text, states | media)):
        call = executor(kind, program)
        batch = SimpleBatch(64, call.table_block_sizes).step({0: text(1, tokens)}, all_logits=True)
        batch |= {"inputs": inputs, "media_rows": image_tokens, "grid_positions": grid}
        logits = np.array(call(batch)["logits"])
        found.append(logits / np.linalg.norm(logits, axis=-1, keepdims=True))
    assert error(found[1], found[0]) <= TOLERANCE


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 13}], ids=["whole", "chunks"])
@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_a_head_that_is_right(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    images = _MODELS[family](tmp_path / "target")
    _make_equal_head(tmp_path / "head", tmp_path / "target")
    expected, _, _ = _tokens(tmp_path / "target", images, {}, **options)
    drafts = _drafts("eagle", tmp_path / "head")
    tokens, drafted, accepted = _tokens(tmp_path / "target", images, drafts, **options)
    assert tokens == expected
    # A request that ends by length drops the tokens accepted after that.
    assert accepted == drafted > 0


def test_a_head_may_read_positions_in_time_alone(tmp_path: Path) -> None:
    """One without `mrope_section`; its guesses behind an image are others."""
    images = _MODELS["qwen2_5_vl"](tmp_path / "target")
    _make_equal_head(tmp_path / "head", tmp_path / "target")
    fields = json.loads((tmp_path / "head" / _CONFIG).read_text())
    rope = fields["rope_parameters"]
    del rope["mrope_section"]
    (tmp_path / "head" / _CONFIG).write_text(json.dumps(fields))
    expected, _, _ = _tokens(tmp_path / "target", images, {})
    tokens, drafted, _ = _tokens(tmp_path / "target", images, _drafts("eagle", tmp_path / "head"))
    assert tokens == expected
    assert drafted > 0


def test_a_head_reads_prompts_as_embeddings(tmp_path: Path) -> None:
    _llava(tmp_path / "target")
    _make_equal_head(tmp_path / "head", tmp_path / "target")
    table = load_file(tmp_path / "target" / _TENSORS)["language_model.model.embed_tokens.weight"]
    ids = [text(1, 40), text(2, 5)]
    rows = [{"prompt_embeds": table[each].numpy()} for each in ids]
    model = MediaTestModel(tmp_path / "target", _no_reference)
    with model.llm(
        language_model_only=True,
        enable_prompt_embeds=True,
        speculative_config=_drafts("eagle", tmp_path / "head"),
    ) as llm:
        outputs, expected = (model.generate(llm, prompts, [[], []]) for prompts in (rows, ids))
        stats = llm._engine.stats()
    assert [o.choices[0].token_ids for o in outputs] == [o.choices[0].token_ids for o in expected]
    assert stats.accepted_draft_tokens == stats.draft_tokens > 0


def test_an_mtp_layer_behind_images(tmp_path: Path) -> None:
    """Of GLM-4V, whose MTP layer follows the layers of its language model."""
    images = _grid("glm4v_moe")(tmp_path)
    tensors = load_file(tmp_path / _TENSORS)
    fields = json.loads((tmp_path / _CONFIG).read_text())
    text_config = fields["text_config"]
    layers, hidden = text_config["num_hidden_layers"], text_config["hidden_size"]
    prefix = "model.language_model.layers."
    last = f"{prefix}{layers - 1}."
    mtp = {
        name.replace(last, f"{prefix}{layers}."): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    for name in ("enorm", "hnorm", "shared_head.norm"):
        mtp[f"{prefix}{layers}.{name}.weight"] = torch.ones(hidden)
    mtp[f"{prefix}{layers}.eh_proj.weight"] = torch.randn(hidden, 2 * hidden) / hidden**0.5
    save_file(tensors | mtp, tmp_path / _TENSORS)
    text_config["num_nextn_predict_layers"] = 1
    (tmp_path / _CONFIG).write_text(json.dumps(fields))
    expected, _, _ = _tokens(tmp_path, images, {})
    drafts = {"method": "mtp", "num_speculative_tokens": 2}
    tokens, drafted, _ = _tokens(tmp_path, images, drafts)
    assert tokens == expected
    assert drafted > 0
