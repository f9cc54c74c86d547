"""Which files of a repository are a model. Only data is fetched: safetensors, GGUF, JSON,
templates."""

import fnmatch
from collections.abc import Sequence

from pagemill.weights.errors import FetchError
from pagemill.weights.gguf_split import split_names

# The last is of ColBERT.
DATA = ("*.json", "*.jinja", "*.safetensors", "tokenizer.model*", "artifact.metadata")
LEFT_OUT = ("*/*.safetensors", "consolidated*", "onnx/*", "original/*", "openvino/*")
# Layers beside a model (`heads`); files of torch are read without running them.
HEADS = (
    "*_Dense/model.safetensors",
    "*_Dense/pytorch_model.bin",
    "colbert_linear.*",
    "sparse_linear.*",
)
# Adapters that belong to a model (`MediaTraits.adapter`).
ADAPTERS = ("*-lora/adapter_model.safetensors",)
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


def choose_files(repo: str, file: str | None, files: Sequence[str]) -> list[str]:
    """Returns the ones of `files`, relative to a repository or folder named `repo`, that a model
    needs; with `file`, the GGUF file of this name, and the others if it is the first of several.

    Raises:
      FetchError: it has no usable ones; the message lists what it has.
    """
    if file is not None:
        parts = list(split_names(file))
        for part in parts:
            if part not in files:
                raise FetchError(f"{repo} has no file {part}{_ggufs(repo, files)}")
        return parts
    chosen = [
        name
        for name in files
        if _matches(name, (*HEADS, *ADAPTERS))
        or (_matches(name, DATA) and not _matches(name, LEFT_OUT))
    ]
    described = "config.json" in chosen or "adapter_config.json" in chosen
    if described and any("/" not in name for name in chosen if name.endswith(".safetensors")):
        return chosen
    if ggufs := sorted(name for name in files if name.endswith(".gguf")):
        if list(split_names(ggufs[0])) == ggufs:
            return ggufs
        raise FetchError(f"{repo} holds several GGUF files{_ggufs(repo, files)}")
    if any(name.endswith(PICKLES) for name in files):
        raise FetchError(
            f"{repo} holds its weights as Python pickles, which can run code when they are"
            " read and are refused: look for a safetensors or GGUF version of the model"
        )
    raise FetchError(f"{repo} holds neither safetensors with a config.json nor a GGUF file")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _ggufs(repo: str, files: Sequence[str]) -> str:
    names = [name for name in files if name.endswith(".gguf")]
    if not names:
        return ""
    listed = ", ".join(names[:20])
    return f"; name one of them as {repo}/FILE: {listed}"
