"""Models and adapters on the Hugging Face hub. Only data is fetched: safetensors, GGUF, JSON,
templates.

huggingface_hub is imported only if a hub id is given. It uses HF_TOKEN.
"""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill.weights.errors import FetchError
from pagemill.weights.model_files import choose_files

_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w./-]+\.gguf))?")


@dataclass(frozen=True, slots=True)
class HubId:
    """`owner/name`, or with `file` one GGUF file of it, or the first of a model in several."""

    repo: str
    file: str | None
    revision: str | None

    @property
    def slug(self) -> str:
        """A file name for this id."""
        parts = [self.repo, self.file or "", self.revision or ""]
        return "--".join(part.replace("/", "-") for part in parts if part)


def parse_hub_id(text: str, revision: str | None) -> HubId | None:
    """Returns the hub id that `text` spells, or None if it does not."""
    match = _HUB_ID.fullmatch(text)
    if match is None or ".." in text:
        return None
    return HubId(match[1], match[2], revision)


def cached_model(wanted: HubId, cache: Path) -> Path | None:
    """Returns the path of a model that was fetched completely before, without network access."""
    try:
        path = Path(json.loads(_marker(wanted, cache).read_text(encoding="utf-8"))["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path if path.exists() else None


def fetch_hub_model(wanted: HubId, cache: Path) -> Path:
    """Downloads a model into `cache` and returns its directory or GGUF file.

    Raises:
      FetchError: huggingface_hub is missing, the hub cannot be reached or refuses, or the
        repository holds nothing usable.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise FetchError(
            f"to fetch {wanted.repo}, install huggingface-hub (`pip install huggingface-hub`), or"
            " give a local directory or .gguf file"
        )
    import huggingface_hub
    from huggingface_hub import errors

    hub: Any = huggingface_hub  # its types depend on packages that are not installed
    try:
        info = hub.HfApi().model_info(wanted.repo, revision=wanted.revision)
        files = choose_files(wanted.repo, wanted.file, _names(info))
        folder = hub.snapshot_download(
            wanted.repo, revision=info.sha, allow_patterns=files, cache_dir=str(cache / "hub")
        )
    except errors.GatedRepoError:
        raise FetchError(
            f"{wanted.repo} is gated: accept its terms on its hub page and set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise FetchError(f"{wanted.repo} has no revision {wanted.revision!r}") from None
    except errors.RepositoryNotFoundError:
        raise FetchError(
            f"the hub has no model {wanted.repo}, or not for you: check the name, or set HF_TOKEN"
        ) from None
    except FetchError:
        raise
    except Exception as error:
        # The HTTP library's own errors, which changed between versions of huggingface_hub.
        raise FetchError(
            f"{wanted.repo} could not be fetched ({type(error).__name__}: {str(error)[:300]}):"
            " check the network, or give a local directory or .gguf file"
        ) from error
    path = Path(folder)
    if files[0].endswith(".gguf"):
        path = path / files[0]
    marker = _marker(wanted, cache)
    marker.parent.mkdir(parents=True, exist_ok=True)
    partial = marker.with_suffix(".partial")
    partial.write_text(json.dumps({"path": str(path), "revision": info.sha}), encoding="utf-8")
    partial.replace(marker)
    return path


def _names(info: Any) -> list[str]:
    siblings: list[Any] = info.siblings or []
    return [str(sibling.rfilename) for sibling in siblings]


def _marker(wanted: HubId, cache: Path) -> Path:
    return cache / "hub-complete" / f"{wanted.slug}.json"
