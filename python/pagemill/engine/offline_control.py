"""What concerns the engine of an `LLM` as a whole: sessions, sleep, pause, weights and cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal

from pagemill.engine.core import EngineCore
from pagemill.engine.loading import LoadedModel
from pagemill.engine.native_requests import to_engine_error
from pagemill.engine.outputs import EngineError
from pagemill.engine.text_batch import Output
from pagemill.render.token_id_renderer import AnyRenderer
from pagemill.weights.tensor_buckets import NamedTensors

PauseMode = Literal["abort", "wait", "keep"]


@dataclass(frozen=True, slots=True)
class Session:
    """A restored session: its tokens, and of how many leading ones the KV need not be computed."""

    token_ids: list[int]
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """A pin, and how many leading tokens' KV it keeps: whole blocks."""

    id: int
    num_tokens: int


class OfflineControl:
    """The methods of `LLM` that are about all requests."""

    _loaded: LoadedModel
    _renderer: AnyRenderer

    def save_session(
        self, path: str | os.PathLike[str], tokens: str | Sequence[int] | Output
    ) -> int:
        """Writes a conversation's KV to a file, so that another process need not compute it.

        Args:
            path: the file; one that is there is replaced when the new one is whole.
            tokens: a text or token ids that were run before, or an output, with its first choice.

        Returns:
            How many leading tokens' KV is in the file: whole blocks of what is cached now.

        Raises:
            EngineError: nothing of it is cached, or the file cannot be written.
        """
        with self._native_errors():
            return self._core.engine.save_session(os.fspath(path), self._token_ids(tokens))

    def restore_session(self, path: str | os.PathLike[str]) -> Session:
        """Reads what `save_session` wrote: a prompt that begins with these tokens finds their KV.

        Raises:
            EngineError: there is no such file, it is damaged or of another model or KV layout, or
                the KV cache has no room for it.
        """
        with self._native_errors():
            token_ids, num_cached = self._core.engine.restore_session(os.fspath(path))
        return Session(token_ids, num_cached)

    def pin_prefix(self, tokens: str | Sequence[int] | Output) -> PinnedPrefix:
        """Keeps the cached KV of a prompt that was run, such as a long system prompt, from being
        evicted, until `unpin_prefix` or until the prefix cache is reset.

        Args:
            tokens: as for `save_session`.

        Raises:
            EngineError: nothing of it is cached, or it has more blocks than are left of
                `max_pinned_kv_blocks`, which is 0 unless the model was opened with it.
        """
        with self._native_errors():
            return PinnedPrefix(*self._core.engine.pin_prefix(self._token_ids(tokens)))

    def unpin_prefix(self, pin: PinnedPrefix) -> bool:
        """Ends a pin; False if there is none any more."""
        return self._core.engine.unpin_prefix(pin.id)

    def sleep(self, *, keep_kv: bool = False, timeout_s: float = 60.0) -> None:
        """Frees the memory of the weights until `wake`; requests are refused meanwhile.

        Args:
            keep_kv: keep the KV cache in memory, with all cached prefixes. Else its memory is freed
                too, and prefixes are computed again.
            timeout_s: how long to wait for a step in flight.

        Raises:
            EngineError: the executor's weights cannot leave memory (native without pipeline stages
                can), or the time is over.
        """
        with self._native_errors():
            self._core.engine.sleep(keep_kv=keep_kv, timeout_s=timeout_s)

    def wake(self) -> None:
        """Loads the weights again, the same ones; does nothing if the engine is awake.

        Raises:
            EngineError: there is no memory for them. The engine still sleeps.
        """
        with self._native_errors():
            self._core.engine.wake()

    @property
    def is_sleeping(self) -> bool:
        """True from `sleep` to `wake`."""
        return self._core.engine.is_sleeping()

    def update_weights(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        tensors: NamedTensors | None = None,
        weight_version: str | None = None,
    ) -> None:
        """Replaces the weights with those of another checkpoint of the same model, or some of them
        with tensors of a trainer in this process. Requests under way continue with the new ones.

        Args:
            path: a directory of safetensors, or a GGUF file, as the model is; its configuration
                and tokenizer are not read. A file that has been replaced by another of the same
                name is read again. Old and new weights are in memory at once, unless the engine
                sleeps: then `wake` loads the new ones.
            tensors: names, as in the checkpoint, and tensors of torch or arrays of numpy, such as
                `model.state_dict().items()`; read once. They go through files of 1 GiB, or
                of 1/64 of a model of more than 64 GiB, in `weight_transfer_dir`, by default in
                /dev/shm, where they stay; beside the weights there are changed ones of one file at
                a time.
            weight_version: what the weights are called from now on.

        Raises:
            ValueError: not one of `path` and `tensors` is given.
            EngineError: a file or a tensor is missing or damaged, or a tensor differs in type or
                shape. Nothing has changed, except for tensors of earlier files.
            WeightsError: a tensor is of a type that checkpoints do not have.
        """
        weights = self._loaded.weights
        with self._native_errors():
            if path is not None and tensors is None:
                weights.update_weights(os.fspath(path), weight_version)
            elif tensors is not None and path is None:
                weights.send(tensors, weight_version)
            else:
                raise ValueError("update_weights takes a path, or tensors")

    @property
    def weight_version(self) -> str:
        """What the weights are called; "" until they get a name."""
        return self._loaded.weights.weight_info()["weight_version"]

    def pause(
        self, mode: PauseMode = "abort", *, clear_cache: bool = True, timeout_s: float = 60.0
    ) -> None:
        """Stops running steps until `resume`; returns when the last one is over. Requests may be
        enqueued meanwhile; a method that waits for outputs raises an error.

        Args:
            mode: running requests are aborted ("abort": their outputs end with the finish reason
                "abort"), finish ("wait"), or stay where they are ("keep").
            clear_cache: forget all cached prefixes then, except with "keep".
            timeout_s: how long to wait.

        Raises:
            EngineError: the mode is unknown, or the time is over: then the pause goes on.
        """
        with self._native_errors():
            engine = self._core.engine
            engine.pause(mode)
            if not engine.wait_paused(timeout_s):
                message = f"the pause is not complete after {timeout_s:g} s; resume() ends it"
                raise EngineError("DEADLINE_EXCEEDED", message)
            if clear_cache and mode != "keep":
                engine.reset_prefix_cache()

    def resume(self) -> None:
        """Ends a pause: requests that stayed or were enqueued run. Does nothing without one."""
        self._core.engine.resume()

    @property
    def is_paused(self) -> bool:
        """True from the end of `pause` to `resume`."""
        return self._core.engine.wait_paused(0.0)

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forgets all cached prefixes, those in KV tiers too.

        Args:
            reset_running_requests: preempt requests that run, such as enqueued ones; they are
                computed again.

        Returns:
            False, and nothing is forgotten, if requests run that are not preempted.
        """
        return self._core.engine.reset_prefix_cache(preempt_running=reset_running_requests)

    def reset_encoder_cache(self) -> None:
        """Forgets the embeddings of media that no running request needs."""
        self._core.engine.reset_encoder_cache()

    @property
    def _core(self) -> EngineCore:
        return self._loaded.core

    def _token_ids(self, tokens: str | Sequence[int] | Output) -> list[int]:
        if isinstance(tokens, Output):
            return tokens.prompt_token_ids + tokens.choices[0].token_ids
        if isinstance(tokens, str):
            return list(self._renderer.encode(tokens, parse_special=True))
        return list(tokens)

    @contextlib.contextmanager
    def _native_errors(self) -> Generator[None]:
        try:
            yield
        except self._loaded.core.bindings.status_error as error:
            raise to_engine_error(error) from error
