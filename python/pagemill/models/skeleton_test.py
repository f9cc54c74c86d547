"""The skeleton of `docs/add_a_model.md` builds and runs, as a generator and as an embedder."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from pagemill.inputs.task import Task
from pagemill.models.skeleton import SkeletonModel
from pagemill.ops.program_text import to_text
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.tail import Tail
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.runner.tracing import trace_model
from pagemill.weights.source import ModelSource

CONFIG = """{"vocab_size": 11, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}"""


def _source(directory: Path) -> ModelSource:
    torch.manual_seed(0)
    tensors = {"embed.weight": torch.randn(11, 32), "norm.weight": torch.randn(32)}
    shapes = {"q": (32, 32), "k": (16, 32), "v": (16, 32), "o": (32, 32), "down_proj": (32, 48)}
    shapes |= {"gate_proj": (48, 32), "up_proj": (48, 32), "norm1": (32,), "norm2": (32,)}
    for layer in range(2):
        for name, shape in shapes.items():
            tensors[f"layers.{layer}.{name}.weight"] = torch.randn(shape) / shape[-1] ** 0.5
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(CONFIG)
    return ModelSource.open(directory)


def test_whole_prompt_and_token_by_token_agree(tmp_path: Path):
    source = _source(tmp_path)
    model = SkeletonModel.from_config(source.config)
    text = to_text(trace_model(model, source, Tail(Task.GENERATE), media=()).trace.program)
    tokens = np.random.default_rng(1).integers(0, 11, 23).tolist()
    options = TorchOptions(num_blocks=8, block_size=4)
    batch = SimpleBatch(8, 4).step({0: tokens}, all_logits=True)
    whole = TorchExecutor(text, options)(batch)["logits"]
    executor, batches = TorchExecutor(text, options), SimpleBatch(8, 4, seed=1)
    single = [executor(batches.step({0: [token]}))["logits"] for token in tokens]
    assert whole.shape == (23, 11) and np.ptp(whole) > 1
    np.testing.assert_allclose(np.concatenate(single), whole, atol=2e-5)


def test_it_pools(tmp_path: Path):
    source = _source(tmp_path)
    model = SkeletonModel.from_config(source.config)
    tail = Tail(Task.EMBED, "mean", normalize=True)
    text = to_text(trace_model(model, source, tail, media=()).trace.program)
    executor = TorchExecutor(text, TorchOptions(num_blocks=8, block_size=4))
    outputs = executor(SimpleBatch(8, 4).step({0: [1, 2], 1: [3]}))
    assert set(outputs) == {"pooled"}
    np.testing.assert_allclose(np.linalg.norm(outputs["pooled"], axis=1), [1, 1], atol=1e-6)
