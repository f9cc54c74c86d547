"""Models by URL, in object stores and on ModelScope:

    s3://bucket/folder            gs://bucket/folder            az://container/folder
    s3://bucket/folder/q4.gguf    one GGUF file, or the first of a model in several
    modelscope://owner/name       modelscope://owner/name/q4.gguf

Only data is fetched, as from the hub. The packages for it (s3fs, gcsfs, adlfs, modelscope-hub) are
imported only if a URL is given, and find credentials and endpoints where they always do
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ~/.aws, GOOGLE_APPLICATION_CREDENTIALS, ...).
"""

import hashlib
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from pagemill.weights.download_progress import DownloadProgress
from pagemill.weights.errors import FetchError
from pagemill.weights.model_files import choose_files

PACKAGES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "modelscope": "modelscope-hub",
}

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#\s]+)")
_FILES_AT_ONCE = 4
_DEPTH = 2  # files of a model lie in its folder, or in folders of that


@dataclass(frozen=True, slots=True)
class ModelUrl:
    """`folder` is the URL of a model's folder; with `file`, its GGUF file of this name. `revision`
    is a branch, tag or commit of ModelScope."""

    folder: str
    file: str | None
    revision: str | None

    @property
    def package(self) -> str:
        """The package that reads it."""
        return PACKAGES[self.folder.partition(":")[0]]

    @property
    def slug(self) -> str:
        """A file name for this URL, which no other has."""
        url = "/".join(part for part in (self.folder, self.file, self.revision) if part)
        digest = hashlib.sha256(url.encode()).hexdigest()[:12]
        return re.sub(r"[^\w.-]+", "-", url)[-80:].strip("-.") + f"-{digest}"

    def path_in(self, folder: Path) -> Path:
        """The model once its files are in `folder`."""
        return folder if self.file is None else folder / self.file


def parse_url(text: str, revision: str | None) -> ModelUrl:
    """Returns the URL that `text` spells.

    Raises:
      FetchError: it is none, no place of that kind is known, or the place has no revisions.
    """
    match = _URL.fullmatch(text)
    if match is None or match[1] not in PACKAGES:
        raise FetchError(
            f"{text}: models are read from {', '.join(f'{name}://' for name in PACKAGES)}, from hub"
            " ids (owner/name) and from paths"
        )
    if revision is not None and match[1] != "modelscope":
        raise FetchError(f"{text} has no revisions: leave {revision!r:.60} out")
    url = text.rstrip("/")
    if not url.endswith(".gguf"):
        return ModelUrl(url, None, revision)
    folder, _, file = url.rpartition("/")
    return ModelUrl(folder, file, revision)


def fetch_by_url(wanted: ModelUrl, target: Path, progress: DownloadProgress) -> None:
    """Makes `target` the folder of the model's files, which is there whole or not at all.

    Files that an interrupted call has fetched are kept beside it, and used by the next one if
    the place still lists the same.

    Raises:
      FetchError: the package for it is missing, the place cannot be reached or refuses, or it holds
        nothing usable at the URL.
    """
    package = wanted.package
    if find_spec(package.replace("-", "_")) is None:
        raise FetchError(f"to fetch {wanted.folder}, install {package} (`pip install {package}`)")
    try:
        if package == "modelscope-hub":
            _from_modelscope(wanted, target)
        else:
            _from_store(wanted, target, progress)
    except FetchError:
        raise
    except FileNotFoundError as error:
        raise FetchError(f"there is nothing at {wanted.folder} ({str(error)[:200]})") from None
    except Exception as error:  # each store has errors of its own
        raise FetchError(
            f"{wanted.folder} could not be fetched ({type(error).__name__}: {str(error)[:300]}):"
            f" check the network, and the credentials that {package} finds"
        ) from error


def _from_modelscope(wanted: ModelUrl, target: Path) -> None:
    # Its progress bars are its own; it checks digests, and goes on with what it has.
    hub = import_module("modelscope_hub").HubApi()
    repo = wanted.folder.partition("://")[2]
    listed = hub.list_repo_files(repo, "model", revision=wanted.revision)
    names = choose_files(wanted.folder, wanted.file, [str(file.path) for file in listed])
    partial = target.with_name(f"{target.name}.partial")
    hub.download_repo(
        repo, "model", revision=wanted.revision, local_dir=str(partial), allow_patterns=names
    )
    partial.replace(target)


def _from_store(wanted: ModelUrl, target: Path, progress: DownloadProgress) -> None:
    store, root = import_module("fsspec.core").url_to_fs(wanted.folder)
    depth = _DEPTH if wanted.file is None else 1
    listed = {
        str(PurePosixPath(path).relative_to(root)): facts
        for path, facts in store.find(root, maxdepth=depth, detail=True).items()
        if ".." not in PurePosixPath(path).parts
    }
    if not listed:
        raise FileNotFoundError("an empty list")
    names = choose_files(wanted.folder, wanted.file, list(listed))
    files = {name: listed[name] for name in names}
    partial = target.with_name(f"{target.name}.{_revision(files)}.partial")
    for stale in target.parent.glob(f"{target.name}.*.partial"):
        if stale != partial:
            shutil.rmtree(stale, ignore_errors=True)
    missing = sum(int(files[name]["size"]) for name in names if not (partial / name).is_file())
    if shutil.disk_usage(target.parent).free < missing:
        raise FetchError(
            f"{target.parent} has less than the {missing >> 20} MiB of {wanted.folder} free: free"
            " some, or choose another folder with --cache-dir"
        )
    download = _Download(store, partial, files, progress)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        try:
            list(pool.map(download.file, files))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    partial.replace(target)


def _revision(files: dict[str, dict[str, Any]]) -> str:
    """Names what a store lists: a file that was replaced has another time or digest there."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]


class _Download:
    """The files of one model, fetched by several threads into `folder`."""

    def __init__(
        self,
        store: Any,
        folder: Path,
        files: dict[str, dict[str, Any]],
        progress: DownloadProgress,
    ) -> None:
        self._store = store
        self._folder = folder
        self._files = files
        self._progress = progress
        self._lock = threading.Lock()
        self._fetched_bytes: dict[str, int] = {}
        self._total_bytes = sum(int(facts["size"]) for facts in files.values())

    def file(self, name: str) -> None:
        """Fetches the file `name` unless it is there."""
        path, size = self._folder / name, int(self._files[name]["size"])
        if path.is_file():
            self._count(name, size)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")

        def count(size: int, value: int, **_: Any) -> None:
            self._count(name, value)

        callback = import_module("fsspec.callbacks").Callback(hooks={"count": count})
        self._store.get_file(self._files[name]["name"], str(part), callback=callback)
        if part.stat().st_size != size:
            raise FetchError(f"{name} ended after {part.stat().st_size} of {size} bytes: try again")
        part.replace(path)

    def _count(self, name: str, fetched: int) -> None:
        with self._lock:
            self._fetched_bytes[name] = fetched
            self._progress.show(sum(self._fetched_bytes.values()), self._total_bytes)
