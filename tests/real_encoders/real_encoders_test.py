"""Real encoders equal `transformers`: vectors of all-mpnet-base-v2, and labels of Rampart, which
marks personal data in texts."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import torch
from pagemill.inputs.task import Task
from pagemill.render.renderer import Renderer
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.numpy import save_file
from transformers import AutoModel, AutoModelForTokenClassification

from tests.parity.executors import make_executor, new_batches
from tests.parity.model_path import model_path
from tests.real_encoders.onnx_weights import onnx_weights

SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "Paging a key-value cache lets requests of different lengths share one pool of memory. " * 12,
    "!",
]
# Some of what is personal in each.
PERSONAL = {
    "My name is Maria Jensen, and I live in Copenhagen.": {"GIVEN_NAME", "SURNAME"},
    "Send it to John Smith, 12 Baker Street, London.": {"GIVEN_NAME", "SURNAME"},
    "The weather is nice today.": set[str](),
}


def test_vectors_of_mpnet(tmp_path: Path) -> None:
    with zipfile.ZipFile(model_path("PAGEMILL_TEST_MPNET_ZIP")) as archive:
        archive.extractall(tmp_path)
    directory = tmp_path / "all-mpnet-base-v2"
    source = ModelSource.open(directory)
    built = build(source, BuildOptions(rewrite=False))
    assert (built.max_model_len, built.output_size, built.pooling) == (384, 768, True)
    renderer = Renderer.open(source)
    ids = [renderer.encode(text, True) for text in SENTENCES]
    run = make_executor("native", source)
    pooled = run(new_batches(run).step(dict(enumerate(ids))))["pooled"]
    reference = AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    for row, tokens in zip(pooled, ids, strict=True):
        with torch.inference_mode():
            expected = reference(torch.tensor([tokens])).last_hidden_state[0].mean(0).numpy()
        cosine = float(row @ expected / np.linalg.norm(expected))
        assert cosine > 0.999999  # the required bound is 0.9999; f32 gives 1 - 1e-7
    assert pooled[0] @ pooled[1] > 0.6 > 0.3 > pooled[0] @ pooled[2]


def test_labels_of_rampart(tmp_path: Path) -> None:
    files = model_path("PAGEMILL_TEST_RAMPART_DIR")
    files = files if files.is_dir() else files.parent
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(files / name, tmp_path)
    save_file(onnx_weights(files / "onnx" / "model_q4.onnx"), tmp_path / "model.safetensors")
    source = ModelSource.open(tmp_path)
    renderer = Renderer.open(source)
    ids = [renderer.encode(text, True) for text in PERSONAL]
    run = make_executor("native", source, task=Task.TOKEN_CLASSIFY)
    logits = run(new_batches(run).step(dict(enumerate(ids))))["pooled"]
    reference = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        rows = [reference(torch.tensor([tokens])).logits[0].numpy() for tokens in ids]
    expected = np.concatenate(rows)
    assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()
    assert (logits.argmax(1) == expected.argmax(1)).all()
    names = json.loads((tmp_path / "config.json").read_text())["id2label"]
    ends = np.cumsum([len(tokens) for tokens in ids])[:-1]
    for labels, personal in zip(np.split(logits.argmax(1), ends), PERSONAL.values(), strict=True):
        found = {names[str(label)].partition("-")[2] for label in labels} - {""}
        assert found >= personal and bool(found) == bool(personal)
