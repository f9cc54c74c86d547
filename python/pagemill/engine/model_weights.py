"""Other weights for an engine that runs: those of another checkpoint of its model, or tensors that
a trainer sends, a part of them or all.

    weights = ModelWeights(engine, built, stored, source, folder="/dev/shm/pagemill")
    weights.update_weights("/checkpoints/step-100")        # all, of a checkpoint
    weights.start_weight_update()                          # no step is planned
    weights.receive_weights("bucket-0.safetensors")        # of the folder; any number of times
    weights.finish_weight_update(weight_version="101")     # steps go on

Programs are built again with other places of weights; the engine compares them with those that it
runs (docs/decisions/0123-weights-are-sent-in-files.md).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from pagemill.config.load_quantization import LoadQuantization
from pagemill.config.speculation import HeadFiles
from pagemill.engine.draft_model import states_for
from pagemill.engine.model_source import quantized, round_sent
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.task import Task
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.sent_files import Received, SentFiles
from pagemill.weights.source import ModelSource
from pagemill.weights.tensor_buckets import NamedTensors, buckets, default_bucket_bytes

PauseMode = Literal["abort", "wait", "keep"]

MAX_VERSION_CHARS = 256
_SHARED_MEMORY = Path("/dev/shm")


class UpdatableEngine(Protocol):
    """What the native engine has for this."""

    def update_weights(
        self, programs: Mapping[str, str], *, timeout_s: float, over: bool, version: str | None
    ) -> None: ...

    def set_weight_version(self, version: str) -> None: ...

    def pause(self, mode: str) -> None: ...

    def wait_paused(self, timeout_s: float) -> bool: ...

    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Sources:
    """The model as a checkpoint has it, and as programs read it: the same, or rounded at load."""

    stored: ModelSource
    read: ModelSource


class ModelWeights:
    """The weights of a running engine. Thread-safe; an update waits for those before it."""

    def __init__(
        self,
        engine: UpdatableEngine,
        built: BuiltModel,
        stored: ModelSource,
        source: ModelSource,
        *,
        at_load: LoadQuantization | None = None,
        head: HeadFiles | None = None,
        folder: str | None = None,
        others: Sequence[BuiltModel] = (),
    ) -> None:
        """`stored` and `source` are the model that `built` was made of, before and after
        `at_load`; `head` is the one that drafts for it. Senders write to `folder`. `others` are
        the programs of ranks 1, 2, ... if each layer is divided among several.

        Raises:
            WeightsError: `folder` cannot be used.
        """
        self._engine, self._at_load = engine, at_load
        options = _options_of(built, head)
        self._options = [replace(options, shard=each.shard) for each in (built, *others)]
        self._sources = _Sources(stored, source)
        self._texts = _texts_of((built, *others))
        self._files = None if folder is None else SentFiles(Path(folder), stored.stored_bytes)
        self._version = ""
        self._is_open = False  # between start and finish
        self._is_paused_here = False
        self._updating = threading.Lock()

    def update_weights(
        self, path: str, weight_version: str | None = None, timeout_s: float = 60.0
    ) -> None:
        """Replaces the weights with those of another checkpoint of the same model: a directory of
        safetensors, or a GGUF file, as the model is. What is replaced there later is not seen.

        Requests under way continue with the new weights, all cached prefixes are forgotten, and a
        draft model or head keeps its own. `timeout_s`: how long to wait for a step in flight.

        Raises:
            EngineError: INVALID_ARGUMENT: a file or a tensor is missing or corrupt. Nothing has
                changed, as with all errors.
            StatusError: a tensor has another type or shape than the loaded one (the message names
                it), the runner's weights cannot be replaced, or there is no memory for both.
        """
        _check_version(weight_version)
        with self._updating:
            try:
                stored = self._sources.stored.with_weights(path)
                read = stored if self._at_load is None else quantized(stored, self._at_load)
                texts = self._texts_with(read)
            except (WeightsError, OSError) as error:
                message = f"`path` cannot be used: {error}"
                raise EngineError("INVALID_ARGUMENT", message, "path") from error
            self._engine.update_weights(
                texts, timeout_s=timeout_s, over=False, version=weight_version
            )
            if self._files is not None:
                self._files.clear()
            self._sources, self._texts = _Sources(stored, read), texts
            self._keep_version(weight_version)

    def weight_transfer(self) -> dict[str, Any]:
        """The folder that senders write to, and the most bytes of tensors in a file there.

        Raises:
            EngineError: FAILED_PRECONDITION: there is none.
        """
        return {
            "folder": str(self._sent_files.folder),
            "max_bytes": self._sources.stored.stored_bytes,
        }

    def start_weight_update(self, mode: PauseMode = "keep", timeout_s: float = 60.0) -> None:
        """Pauses the engine until `finish_weight_update`, unless it is paused: what comes in
        several files is complete when the next step runs.

        Raises:
            EngineError: FAILED_PRECONDITION: an update has been started. DEADLINE_EXCEEDED: the
                pause is not complete after `timeout_s`; the engine goes on.
        """
        with self._updating:
            if self._is_open:
                raise EngineError(
                    "FAILED_PRECONDITION", "A weight update has been started; finish it first."
                )
            self._is_paused_here = not self._engine.wait_paused(0.0)
            if self._is_paused_here:
                self._engine.pause(mode)
                if not self._engine.wait_paused(timeout_s):
                    self._engine.resume()
                    raise EngineError(
                        "DEADLINE_EXCEEDED",
                        f"Requests have not stopped after {timeout_s:g} s; the engine goes on.",
                    )
            self._is_open = True

    def receive_weights(
        self, file: str, weight_version: str | None = None, timeout_s: float = 60.0
    ) -> None:
        """Replaces the tensors that the safetensors file `file` of the folder has, which have
        names, types and shapes of the checkpoint. The file may be removed afterwards.

        Changed weights are made beside the old ones and written over them; of others nothing is
        read. The rest is as in `update_weights`.

        Raises:
            EngineError: FAILED_PRECONDITION: there is no folder. INVALID_ARGUMENT: the file or a
                tensor in it cannot be used. Nothing has changed, as with all errors.
            StatusError: see `update_weights`.
        """
        _check_version(weight_version)
        with self._updating:
            try:
                self._receive(file, weight_version, timeout_s)
            except WeightsError as error:
                raise EngineError(
                    "INVALID_ARGUMENT", f"The weights cannot be used: {error}", "file"
                ) from error
            self._keep_version(weight_version)

    def send(
        self, tensors: NamedTensors, weight_version: str | None = None, timeout_s: float = 60.0
    ) -> None:
        """As `receive_weights`, of tensors in this process, with the engine paused until all are
        received.

        Raises:
            WeightsError: a tensor is of a type that checkpoints do not have. Tensors before it are
                replaced already.
            EngineError, StatusError: as the other methods.
        """
        _check_version(weight_version)
        folder = _shared_memory() if self._files is None else self._files.folder
        if self._files is None:
            self._files = SentFiles(folder, self._sources.stored.stored_bytes)
        bucket_bytes = default_bucket_bytes(self._sources.stored.stored_bytes)
        self.start_weight_update(timeout_s=timeout_s)
        try:
            for bucket in buckets(tensors, bucket_bytes):
                with tempfile.NamedTemporaryFile(dir=folder, suffix=".safetensors") as file:
                    bucket.write(file.file)
                    self.receive_weights(os.path.basename(file.name), timeout_s=timeout_s)
        except BaseException:
            self.finish_weight_update()
            raise
        self.finish_weight_update(weight_version)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Ends `start_weight_update`: steps go on if that has paused the engine.

        Raises:
            EngineError: FAILED_PRECONDITION: no update has been started.
        """
        _check_version(weight_version)
        with self._updating:
            if not self._is_open:
                raise EngineError("FAILED_PRECONDITION", "No weight update has been started.")
            if weight_version is not None:
                self._name(weight_version)
            self._is_open = False
            if self._is_paused_here:
                self._engine.resume()

    def update_weight_version(self, new_version: str) -> None:
        """Names the weights as they are."""
        _check_version(new_version)
        with self._updating:
            self._name(new_version)

    def weight_info(self) -> dict[str, Any]:
        """The name of the weights, "" until they get one, and whether an update is under way."""
        return {"weight_version": self._version, "is_updating": self._is_open}

    @property
    def _sent_files(self) -> SentFiles:
        if self._files is None:
            raise EngineError(
                "FAILED_PRECONDITION",
                "No weights can be sent: start the server with --weight-transfer-dir.",
            )
        return self._files

    def _receive(self, name: str, weight_version: str | None, timeout_s: float) -> None:
        files = self._sent_files
        received = files.receive(name)
        parts = [received]
        try:
            tensors = self._sources.stored.replaceable(received.tensors)
            parts = self._as_read(Received(received.file, tensors))
            sent = {name: at for part in parts for name, at in part.tensors.items()}
            source = self._sources.read.with_replaced({**files.tensors, **sent})
            texts = self._texts_with(source)
            changed = {name: text for name, text in texts.items() if text != self._texts[name]}
            self._engine.update_weights(
                changed, timeout_s=timeout_s, over=True, version=weight_version
            )
        except BaseException:
            for part in parts:
                files.drop(part)
            raise
        for part in parts:
            files.keep(part)
        self._texts = texts

    def _texts_with(self, source: ModelSource) -> dict[str, str]:
        return _texts_of([build(source, options) for options in self._options])

    def _as_read(self, received: Received) -> list[Received]:
        """Tensors of a checkpoint as programs read them: matrices that are rounded at load are
        those of another file."""
        if self._at_load is None:
            return [received]
        files = self._sent_files
        with tempfile.TemporaryDirectory(dir=files.folder) as folder:
            path = Path(folder, "rounded.safetensors")
            rounded = round_sent(
                self._sources.stored, self._sources.read, self._at_load, received.tensors, path
            )
            if not rounded:
                return [received]
            others = {n: at for n, at in received.tensors.items() if n not in rounded}
            return [Received(received.file, others), files.receive_path(path)]

    def _name(self, weight_version: str) -> None:
        self._engine.set_weight_version(weight_version)
        self._version = weight_version

    def _keep_version(self, weight_version: str | None) -> None:
        if weight_version is not None:
            self._version = weight_version


def _options_of(built: BuiltModel, head: HeadFiles | None) -> BuildOptions:
    """How programs of other weights are built, to be those of `built` otherwise."""
    options = BuildOptions(
        max_model_len=built.max_model_len,
        task=Task.GENERATE,
        adapters=bool(built.adapter_targets),
        draft_states=states_for(head),
        refused_media=frozenset(get_args(MediaKind)) - _kinds_of(built),
        prompt_embeds=built.embeds_width > 0,
        media_embeds=built.takes_media_embeds,
        language_only=built.takes_media_embeds and not built.encodes_media,
    )
    pooled = built.pooled
    if pooled is None:
        return options
    if pooled.task is Task.MEDIA_EMBED:
        return replace(options, task=None, encoder_only=True)
    kind = None if pooled.task.by_token else pooled.pooling
    return replace(options, task=pooled.task, pooling=kind, normalize=pooled.normalizes)


def _kinds_of(built: BuiltModel) -> set[MediaKind]:
    """Of media that its encoders take."""
    return {kind for encoder in built.encoders for kind in encoder.traits.placeholders}


def _texts_of(ranks: Sequence[BuiltModel]) -> dict[str, str]:
    """The programs of a model, as the engine's operation takes them: those of rank 0, which alone
    has encoders, and the part of the model that each other rank runs."""
    built, *others = ranks
    encoders = enumerate(built.encoders)
    return {
        "model": built.program_text,
        **{f"encoder.{number}": encoder.program_text for number, encoder in encoders},
        **{f"{rank}/model": other.program_text for rank, other in enumerate(others, 1)},
    }


def _check_version(weight_version: str | None) -> None:
    if weight_version is not None and len(weight_version) > MAX_VERSION_CHARS:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`weight_version` has more than {MAX_VERSION_CHARS} characters.",
            "weight_version",
        )


def _shared_memory() -> Path:
    return _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
