"""Offline use: a model in this process, without a server.

    with LLM("model.gguf") as llm:
        (output,) = llm.generate("The capital of France is", SamplingParams(temperature=0))
        print(output.choices[0].text)

Rendering, stop strings and defaults are those of the server.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

import numpy as np

from pagemill.config import EngineConfig, build
from pagemill.config.env import cache_folder
from pagemill.engine.fan_out import child_sampling
from pagemill.engine.limits import prompt_array, resolve_max_tokens
from pagemill.engine.loading import LoadedModel, load, update_weights
from pagemill.engine.media import ImageInput, MediaItem, place_images
from pagemill.engine.native_requests import to_engine_error
from pagemill.engine.offline_batch import OfflineBatch, Request
from pagemill.engine.outputs import ChoiceOutput, EngineError, TokenLogprobs
from pagemill.engine.progress_bar import ProgressBar
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.token_matcher import TokenMatcherFactory
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.render.assembly import ChoiceAssembler
from pagemill.render.renderer import Renderer

Message = Mapping[str, Any]
Prompt = str | Sequence[int]

_DEFAULT_COMPLETION_TOKENS = 16  # as the HTTP API has it; a chat gets all the room there is


@dataclass(slots=True)
class Choice:
    """One continuation. `token_ids` includes the token that stopped it; `text` does not."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class Output:
    """A prompt and its `n` continuations. `prompt_logprobs[i]` is of prompt token `i + 1`."""

    prompt_token_ids: list[int]
    choices: list[Choice]
    prompt_logprobs: list[TokenLogprobs] | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A restored session: its tokens, and of how many leading ones the KV need not be computed."""

    token_ids: list[int]
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Token ids with all placeholders of images, and the images."""

    token_ids: Sequence[int]
    media: Sequence[MediaItem]


@dataclass(frozen=True, slots=True)
class _Running:
    """A child request: where its news go."""

    output: Output
    choice: Choice
    assembler: ChoiceAssembler

    def take(self, news: ChoiceOutput) -> int:
        """Adds `news`; returns how many tokens they brought."""
        if news.error is not None:
            raise news.error
        delta = self.assembler.push(news)
        choice, output = self.choice, self.output
        choice.text += delta.text
        choice.token_ids += delta.token_ids
        if delta.logprobs is not None:
            choice.logprobs = (choice.logprobs or []) + delta.logprobs
        choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason
        output.num_cached_tokens = max(output.num_cached_tokens, news.num_cached_tokens)
        if news.prompt_logprobs is not None:
            output.prompt_logprobs = news.prompt_logprobs
        return len(delta.token_ids)


class LLM:
    """A loaded model. Close it, or use it as a context manager. Not thread-safe."""

    def __init__(self, model: str | None = None, **options: Any) -> None:
        """Loads `model`; without one, the default model.

        Args:
            model: a .gguf file, a directory, or a hub id.
            options: any option of `pagemill serve` about the engine, by its name with
                underscores: `max_model_len=4096`, `kv_cache_memory_bytes="2GiB"`.

        Raises:
            ConfigError: an option is unknown, or the model does not fit this machine.
            FetchError, WeightsError, RenderError: the model cannot be found or read.
        """
        self._open(build(EngineConfig, {**options, "model": model}))

    @classmethod
    def from_config(cls, config: EngineConfig) -> LLM:
        """Loads what `config` says; raises what the constructor does."""
        llm = cls.__new__(cls)
        llm._open(config)
        return llm

    def _open(self, config: EngineConfig) -> None:
        self._loaded: LoadedModel = load(config)
        self._engine = self._loaded.core.engine
        self._next_id = 1
        try:
            model = config.model
            self._renderer = Renderer.open(
                self._loaded.source,
                model.chat_template,
                model.trust_control_tokens,
                cache_folder(model.cache_dir),
            )
        except BaseException:
            self._end_engine()
            raise
        built = self._loaded.core.built
        self._eos = tuple(dict.fromkeys((*built.eos_token_ids, *self._renderer.eos_token_ids)))

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the engine and all processes. Idempotent."""
        self._end_engine()
        self._renderer.close()

    def _end_engine(self) -> None:
        self._engine.shutdown()
        self._loaded.core.close_ranks()

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The other processes of a model that is divided among ranks."""
        workers = self._loaded.core.workers
        return () if workers is None else workers.pids

    @property
    def renderer(self) -> Renderer:
        """The model's tokenizer and chat template."""
        return self._renderer

    def stats(self) -> EngineSnapshot:
        """What the engine has counted since it started: tokens, drafts, blocks, ..."""
        return self._engine.stats()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | None = None,
        *,
        images: Sequence[Sequence[ImageInput]] | None = None,
        token_matcher: TokenMatcherFactory | None = None,
        progress: TextIO | None = None,
        **fields: Any,
    ) -> list[Output]:
        """Continues each prompt; outputs come in the order of the prompts.

        Args:
            prompts: a text, token ids, or a list of either.
            sampling: how to sample; `max_tokens` is 16 unless it says otherwise.
            fields: fields of `SamplingParams`, in place of `sampling`.
            images: those of each prompt, pixels [3, height, width] normalized as the model wants
                them, or for models with a grid patches and how many there are in time, height and
                width; a prompt has one placeholder token for each.
            token_matcher: makes what constrains an output; called for each of them.
            progress: where a progress bar is drawn; standard error, if that is a terminal, where
                None.

        Raises:
            EngineError: a request is refused or fails; the others are aborted.
        """
        token_ids = [
            self._renderer.encode(prompt, parse_special=True) if isinstance(prompt, str) else prompt
            for prompt in _as_list(prompts)
        ]
        stated = _stated(sampling, fields)
        return self._run(
            self._place(token_ids, images),
            stated,
            _DEFAULT_COMPLETION_TOKENS,
            token_matcher,
            progress,
        )

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: SamplingParams | None = None,
        *,
        token_matcher: TokenMatcherFactory | None = None,
        progress: TextIO | None = None,
        **fields: Any,
    ) -> list[Output]:
        """Answers one conversation, or several; the arguments are those of `generate`.

        Raises:
            RenderError: the model has no chat template, or it refuses the messages.
            EngineError: see `generate`.
        """
        single = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Any = [messages] if single else messages
        token_ids = [self._renderer.encode_chat(conversation) for conversation in conversations]
        stated = _stated(sampling, fields)
        limit = self._loaded.defaults.max_tokens
        return self._run(self._place(token_ids), stated, limit, token_matcher, progress)

    def embed(
        self, texts: Prompt | Sequence[Prompt], *, progress: TextIO | None = None
    ) -> np.ndarray:
        """Embeds each text with a pooling model: float32 `[texts, dim]`.

        Raises:
            EngineError: a text is too long, or the model does not pool.
        """
        built = self._loaded.core.built
        prompts: list[np.ndarray] = []
        for text in _as_list(texts):
            ids = self._renderer.encode(text) if isinstance(text, str) else text
            if len(ids) > built.max_model_len:
                raise EngineError(
                    "INVALID_ARGUMENT",
                    f"a text has {len(ids)} tokens; the model takes {built.max_model_len}",
                )
            prompts.append(prompt_array(ids, built.vocab_size, "texts"))
        vectors: dict[int, np.ndarray] = {}
        with contextlib.closing(ProgressBar(len(prompts), progress or sys.stderr)) as bar:
            for news in self._batch([Request(prompt, None) for prompt in prompts]):
                if news.error is not None:
                    raise news.error
                if news.pooled is not None:
                    vectors[news.index] = news.pooled
                bar.add(tokens=0, finished=news.finish_reason is not None)
        return np.stack([vectors[i] for i in range(len(prompts))])

    def save_session(self, path: str | os.PathLike[str], tokens: Prompt | Output) -> int:
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
            return self._engine.save_session(os.fspath(path), self._token_ids(tokens))

    def restore_session(self, path: str | os.PathLike[str]) -> Session:
        """Reads what `save_session` wrote: a prompt that begins with these tokens finds their KV.

        Raises:
            EngineError: there is no such file, it is damaged or of another model or KV layout, or
                the KV cache has no room for it.
        """
        with self._native_errors():
            token_ids, num_cached = self._engine.restore_session(os.fspath(path))
        return Session(token_ids, num_cached)

    def sleep(self, *, keep_kv: bool = False, timeout_s: float = 60.0) -> None:
        """Frees the memory of the weights until `wake`; requests are refused meanwhile.

        Args:
            keep_kv: keep the KV cache in memory, with all cached prefixes. Else its memory is freed
                too, and prefixes are computed again.
            timeout_s: how long to wait for a step in flight.

        Raises:
            EngineError: the executor's weights cannot leave memory (native with one rank can), or
                the time is over.
        """
        with self._native_errors():
            self._engine.sleep(keep_kv=keep_kv, timeout_s=timeout_s)

    def wake(self) -> None:
        """Loads the weights again, the same ones; does nothing if the engine is awake.

        Raises:
            EngineError: there is no memory for them. The engine still sleeps.
        """
        with self._native_errors():
            self._engine.wake()

    @property
    def is_sleeping(self) -> bool:
        """True from `sleep` to `wake`."""
        return self._engine.is_sleeping()

    def update_weights(self, path: str | os.PathLike[str]) -> None:
        """Goes on with the weights of another checkpoint of the same model; its configuration and
        tokenizer are not read. Old and new weights are in memory at once, unless the engine sleeps:
        then the new ones are loaded by `wake`.

        Args:
            path: a directory of safetensors, or a GGUF file, as the model is. A file that has been
                replaced by another of the same name is read anew.

        Raises:
            WeightsError, EngineError: a file or a tensor is missing or damaged, or a tensor differs
                in type or shape. Nothing has changed.
        """
        with self._native_errors():
            update_weights(self._loaded.core, self._loaded.source, os.fspath(path))

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached prefixes, those in KV tiers too; False if that is not possible now."""
        return self._engine.reset_prefix_cache()

    def _token_ids(self, tokens: Prompt | Output) -> list[int]:
        if isinstance(tokens, Output):
            return tokens.prompt_token_ids + tokens.choices[0].token_ids
        if isinstance(tokens, str):
            return list(self._renderer.encode(tokens, parse_special=True))
        return list(tokens)

    @contextlib.contextmanager
    def _native_errors(self) -> Generator[None]:
        try:
            yield
        except self._loaded.core.seam.status_error as error:
            raise to_engine_error(error) from error

    def _place(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[ImageInput]] | None = None,
    ) -> list[_Prompt]:
        if images is None:
            images = [()] * len(prompts)
        if len(images) != len(prompts):
            message = f"there are images of {len(images)} prompts, but {len(prompts)} prompts"
            raise EngineError("INVALID_ARGUMENT", message, "images")
        encoder = self._loaded.core.built.encoder
        return [
            _Prompt(*place_images(ids, own, encoder))
            for ids, own in zip(prompts, images, strict=True)
        ]

    def _run(
        self,
        prompts: Sequence[_Prompt],
        stated: SamplingParams,
        default_max_tokens: int | None,
        token_matcher: TokenMatcherFactory | None,
        progress: TextIO | None,
    ) -> list[Output]:
        params = self._loaded.defaults.fill(stated)
        built = self._loaded.core.built
        outputs: list[Output] = []
        running: list[_Running] = []
        requests: list[Request] = []
        for prompt in prompts:
            array = prompt_array(prompt.token_ids, built.vocab_size, "prompts")
            room = resolve_max_tokens(
                len(array), stated.max_tokens, default_max_tokens, built.max_model_len, "prompts"
            )
            output = Output(array.tolist(), [Choice() for _ in range(params.n)])
            outputs.append(output)
            children = child_sampling(
                params,
                max_tokens=room,
                eos_token_ids=self._eos,
                make=self._loaded.core.seam.make_sampling,
            )
            for choice, native in zip(output.choices, children, strict=True):
                running.append(_Running(output, choice, self._assembler(array, params)))
                requests.append(Request(array, native, prompt.media))
        batch = self._batch(requests, token_matcher)
        with contextlib.closing(ProgressBar(len(requests), progress or sys.stderr)) as bar:
            for news in batch:
                child = running[news.index]
                tokens = child.take(news)
                if child.assembler.finished:
                    batch.stop(news.index)  # where a stop string matched, the engine goes on
                bar.add(tokens=tokens, finished=child.assembler.finished)
        return outputs

    def _batch(
        self, requests: list[Request], token_matcher: TokenMatcherFactory | None = None
    ) -> OfflineBatch:
        core = self._loaded.core
        first_id, self._next_id = self._next_id, self._next_id + len(requests)
        return OfflineBatch(core.seam, requests, core.max_choices, first_id, token_matcher)

    def _assembler(self, prompt: np.ndarray, params: SamplingParams) -> ChoiceAssembler:
        return ChoiceAssembler(
            self._renderer.detokenizer(prompt.tolist(), params.skip_special_tokens),
            stop=params.stop,
            include_stop=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
        )


def _as_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [cast(Prompt, prompts)]
    return cast(Sequence[Prompt], prompts)


def _stated(sampling: SamplingParams | None, fields: Mapping[str, Any]) -> SamplingParams:
    if sampling is not None and fields:
        raise TypeError("give either `sampling` or its fields, not both")
    return sampling or SamplingParams(**fields)
