"""Offline use: a model in this process, without a server.

    with LLM("model.gguf") as llm:
        (output,) = llm.generate("The capital of France is", SamplingParams(temperature=0))
        print(output.choices[0].text)
        llm.enqueue(["Dogs are", "Cats are"])  # they run while this thread does other things
        outputs = llm.wait_for_completion()

Rendering, stop strings and defaults are those of the server.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from pagemill.config import (
    EngineConfig,
    MediaConfig,
    ModelConfig,
    OfflineConfig,
    build,
    flatten,
    for_media,
)
from pagemill.config.env import cache_folder
from pagemill.engine.adapters import Adapters
from pagemill.engine.enqueued import Enqueued
from pagemill.engine.loading import LoadedModel, load
from pagemill.engine.logits_processor import LogitsProcessor
from pagemill.engine.offline_batch import OfflineQueue
from pagemill.engine.offline_beams import BeamSearchParams, search_beams
from pagemill.engine.offline_control import OfflineControl
from pagemill.engine.offline_media import (
    AudioSource,
    ImageSource,
    OfflineMedia,
    VideoSource,
)
from pagemill.engine.offline_pooling import OfflinePooling
from pagemill.engine.offline_prompts import (
    ChatForm,
    Message,
    OfflinePrompts,
    Prompt,
    PromptMedia,
    Text,
)
from pagemill.engine.offline_sampling import Sampling, one_sampling, sampling_of_each
from pagemill.engine.output_functions import OutputFunctions
from pagemill.engine.outputs import EngineError
from pagemill.engine.progress_bar import ProgressBar
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.text_batch import Output, TextBatch, TextModel
from pagemill.engine.token_matcher import TokenMatcherFactory
from pagemill.engine.turns import StreamingInput, TurnRequest, run_turns, run_turns_async
from pagemill.inputs.io_processor import open_io_processor
from pagemill.inputs.late_interaction import LateInteraction
from pagemill.inputs.task import Task
from pagemill.observe.metrics import RequestMetrics
from pagemill.observe.readings import Reading, readings
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.table import marker_ids
from pagemill.render.late_interaction import late_interaction
from pagemill.render.renderer import Renderer
from pagemill.render.token_id_renderer import AnyRenderer, TokenIdRenderer
from pagemill.structured.grammar import Grammar
from pagemill.structured.vocabulary import Vocabulary

_DEFAULT_COMPLETION_TOKENS = 16  # as the HTTP API has it; a chat gets all the room there is


class LLM(OfflineControl, OfflinePooling):
    """A loaded model. Close it, or use it as a context manager. Not thread-safe."""

    def __init__(self, model: str | None = None, **options: Any) -> None:
        """Loads `model`; without one, the default model.

        Args:
            model: a .gguf file, a directory, or a hub id.
            options: any option of `pagemill serve` about the engine or media, by its name with
                underscores: `max_model_len=4096`, `kv_cache_memory_bytes="2GiB"`,
                `allowed_media_domains="images.example.com"`.

        Raises:
            ConfigError: an option is unknown, or the model does not fit this machine.
            FetchError, WeightsError, RenderError: the model cannot be found or read.
        """
        config = build(OfflineConfig, {**options, "model": model})
        self._open(config.engine, config.media)

    @classmethod
    def from_config(cls, config: EngineConfig, media: MediaConfig | None = None) -> LLM:
        """Loads what `config` says; raises what the constructor does."""
        llm = cls.__new__(cls)
        llm._open(config, media or MediaConfig())
        return llm

    def _open(self, config: EngineConfig, media: MediaConfig) -> None:
        self._loaded: LoadedModel = load(for_media(config, media))
        self._engine = self._loaded.core.engine
        try:
            pooled = self._loaded.core.built.pooled
            self._io_processor = open_io_processor(config.model.io_processor_plugin, pooled)
            self._renderer = open_renderer(self._loaded, config.model)
            self._late_interaction = (
                late_interaction(self._loaded.source, self._renderer)
                if pooled is not None and pooled.task is Task.TOKEN_EMBED
                else LateInteraction()
            )
        except BaseException:
            self._end_engine()
            raise
        core = self._loaded.core
        folder = Path(self._loaded.source.path)
        self._media = OfflineMedia(media, folder, core.max_item_tokens)
        self._prompts = OfflinePrompts(self._renderer, self._media, core.built, self._loaded.source)
        self._queue = OfflineQueue(core.bindings, core.max_choices)
        name, max_model_len = self._loaded.names[0], core.built.max_model_len
        self._metrics = RequestMetrics(name, max_model_len, cache_config=flatten(config.cache))
        self._metrics.watch(lambda: (self._engine.stats(),))
        self._model = TextModel(self._loaded, self._renderer, self._queue, self._metrics)
        self._enqueued = Enqueued(self._queue)
        renderer = self._renderer
        if isinstance(renderer, Renderer):
            core.bindings.grammars.open_vocabulary = lambda: self._vocabulary(renderer)

    def _vocabulary(self, renderer: Renderer) -> Vocabulary:
        size = self._loaded.core.built.vocab_size
        tokenizer = renderer.tokenizer
        markers = marker_ids(tokenizer.added_token_id, Checkpoint(tokenizer.added_tokens))
        return Vocabulary(tokenizer, size, tuple(self._model.eos_token_ids), markers)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the engine and all processes. Idempotent.

        Enqueued requests that have not ended fail, and a warning says how many; outputs of the
        others can still be read by `wait_for_completion`.
        """
        self._enqueued.close()
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
    def renderer(self) -> AnyRenderer:
        """The model's tokenizer and chat template."""
        return self._renderer

    @property
    def adapters(self) -> Adapters:
        """The adapters that prompts may be computed with.

        Raises:
            EngineError: the model was opened without adapters (`enable_lora`, `lora_modules`,
                `default_mm_loras`).
        """
        adapters = self._loaded.core.bindings.adapters
        if not isinstance(adapters, Adapters):
            raise EngineError("FAILED_PRECONDITION", "open the model with enable_lora=True")
        return adapters

    def stats(self) -> EngineSnapshot:
        """What the engine has counted since it started: tokens, drafts, blocks, ..."""
        return self._engine.stats()

    def get_metrics(self) -> list[Reading]:
        """The metrics of docs/metrics.md about the engine and its requests, since the model was
        loaded. Those of requests count `generate`, `chat`, streams and `enqueue`.

        Returns:
            `Counter`, `Gauge` and `Histogram` of `pagemill.observe.readings`.
        """
        return readings(self._metrics.families())

    def reset_mm_cache(self) -> None:
        """Forgets media that were prepared (`mm_processor_cache_gb`)."""
        self._media.reset_cache()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        images: Sequence[Sequence[ImageSource]] | None = None,
        audios: Sequence[Sequence[AudioSource]] | None = None,
        videos: Sequence[Sequence[VideoSource]] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        token_matcher: TokenMatcherFactory | None = None,
        logits_processor: LogitsProcessor | None = None,
        grammar: Grammar | None = None,
        adapter: str = "",
        progress: TextIO | None = None,
        **fields: Any,
    ) -> list[Output]:
        """Continues each prompt; outputs come in the order of the prompts.

        Args:
            prompts: a text, token ids, or embeddings (`Prompt`), or a list of them.
            sampling: how to sample, or a list with that of each prompt; `max_tokens` is 16 unless
                it says otherwise.
            fields: fields of `SamplingParams`, in place of `sampling`.
            images: those of each prompt: paths of files, URLs, images that Pillow has opened, or
                arrays for the encoder (`ImageInput`), pixels [3, height, width] normalized as the
                model wants them, or for models with a grid patches or tiles and the grid. A prompt
                has one placeholder token for each.
            audios: those of each prompt: paths of files, URLs, or samples, f32 [samples] from -1 to
                1 at the model's rate, or with their rate. A prompt has one placeholder for each.
            videos: those of each prompt: paths of files, URLs, frames (`VideoSource`), or what the
                encoder takes (`VideoInput`). A prompt has one placeholder for each.
            mm_processor_kwargs: `{"use_audio_in_video": True}`: the sound of files of videos is
                heard, if the model does.
            token_matcher: makes what constrains an output; called for each of them.
            logits_processor: changes the logits that each token is chosen from.
            grammar: what each output has to be, such as `structured.grammar.json_schema(...)`.
            adapter: the name of an adapter (`adapters`); "": that of the prompt's media
                (`default_mm_loras`), or else the model as it is.
            progress: where a progress bar is drawn; standard error by default, if that is a
                terminal.

        Raises:
            EngineError: a request is refused or fails; the others are aborted.
        """
        media: PromptMedia = {"image": images, "audio": audios, "video": videos}
        rendered = self._prompts.place(prompts, media, mm_processor_kwargs)
        stated = sampling_of_each(sampling, fields, len(rendered))
        limit = _DEFAULT_COMPLETION_TOKENS
        functions = OutputFunctions(token_matcher, logits_processor)
        batch = TextBatch(self._model, rendered, stated, limit, functions, grammar, adapter)
        return _finished(batch, progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        token_matcher: TokenMatcherFactory | None = None,
        logits_processor: LogitsProcessor | None = None,
        grammar: Grammar | None = None,
        adapter: str = "",
        progress: TextIO | None = None,
        **fields: Any,
    ) -> list[Output]:
        """Answers one conversation, or several. Media are parts of messages (docs/images.md,
        docs/audio.md, docs/video.md).

        Args:
            messages: those of a conversation, or a list of such lists.
            sampling: this and the arguments that are not listed here are those of `generate`.
            tools: definitions of functions, in OpenAI's form. Calls stay in the text of an output,
                as the model writes them.
            chat_template_kwargs: variables of the chat template, such as `enable_thinking`.
            add_generation_prompt: end the prompt with the header of the assistant's message.
            continue_final_message: have the last message continued; needs
                `add_generation_prompt=False`.

        Raises:
            RenderError: the model has no chat template, or it refuses the messages.
            EngineError: see `generate`.
        """
        single = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Any = [messages] if single else messages
        form = ChatForm(tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        prompts = [
            self._prompts.conversation(conversation, settings=mm_processor_kwargs, form=form)
            for conversation in conversations
        ]
        limit = self._loaded.defaults.max_tokens
        stated = sampling_of_each(sampling, fields, len(prompts))
        functions = OutputFunctions(token_matcher, logits_processor)
        batch = TextBatch(self._model, prompts, stated, limit, functions, grammar, adapter)
        return _finished(batch, progress)

    def enqueue(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        images: Sequence[Sequence[ImageSource]] | None = None,
        audios: Sequence[Sequence[AudioSource]] | None = None,
        videos: Sequence[Sequence[VideoSource]] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        token_matcher: TokenMatcherFactory | None = None,
        logits_processor: LogitsProcessor | None = None,
        grammar: Grammar | None = None,
        adapter: str = "",
        **fields: Any,
    ) -> list[int]:
        """Submits requests without waiting; returns the id of each prompt's, for
        `wait_for_completion`. The arguments are those of `generate`.

        The engine runs them meanwhile, as many as its queue holds (`max_num_queued_reqs`); the
        others are submitted, and outputs are read, whenever a method waits for outputs. Outputs of
        at most 100,000 choices are held.

        Raises:
            EngineError: a request is refused, or too many are held; none is enqueued then.
        """
        media: PromptMedia = {"image": images, "audio": audios, "video": videos}
        rendered = self._prompts.place(prompts, media, mm_processor_kwargs)
        stated = sampling_of_each(sampling, fields, len(rendered))
        limit = _DEFAULT_COMPLETION_TOKENS
        functions = OutputFunctions(token_matcher, logits_processor)
        return self._enqueued.submit(
            [
                TextBatch(self._model, [prompt], [own], limit, functions, grammar, adapter)
                for prompt, own in zip(rendered, stated, strict=True)
            ]
        )

    def wait_for_completion(
        self, request_ids: Sequence[int] | None = None, *, progress: TextIO | None = None
    ) -> list[Output]:
        """Waits for enqueued requests and returns their outputs, each once.

        Args:
            request_ids: which, and in which order; all by default, in the order of `enqueue`.
            progress: see `generate`.

        Raises:
            EngineError: a request failed: only its output is lost, and another call returns those
                of the others. Or an id is unknown or was returned before, or the engine is paused.
        """
        return self._enqueued.wait(request_ids, progress)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        grammar: Grammar | None = None,
        adapter: str = "",
    ) -> list[Output]:
        """Searches for the most likely outputs of each prompt, `params.beam_width` of them: its
        choices, the best one first, with log probabilities. A step of each prompt is a request for
        one token of each beam, so it is slower than `generate`. With a `grammar` log probabilities
        are those among the tokens that may come.

        Raises:
            EngineError: see `generate`.
        """
        rendered = self._prompts.place(prompts)
        return search_beams(self._model, rendered, params, adapter, grammar)

    def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        *,
        adapter: str = "",
        **fields: Any,
    ) -> Generator[str]:
        """Continues one prompt; gives the pieces of its text as they come. The arguments are those
        of `generate`. Leaving the iteration aborts the request.

        Raises:
            EngineError: see `generate`.
        """
        stated = _one_choice(one_sampling(sampling, fields))
        (rendered,) = self._prompts.place([prompt])
        limit = _DEFAULT_COMPLETION_TOKENS
        return _texts(TextBatch(self._model, [rendered], [stated], limit, adapter=adapter))

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        adapter: str = "",
        **fields: Any,
    ) -> Generator[str]:
        """Answers one conversation; gives the pieces of the answer, as `stream` does. The arguments
        are those of `chat`.

        Raises:
            RenderError: see `chat`.
            EngineError: see `generate`.
        """
        stated = _one_choice(one_sampling(sampling, fields))
        limit = self._loaded.defaults.max_tokens
        form = ChatForm(tools, template_kwargs=chat_template_kwargs)
        prompts = [self._prompts.conversation(messages, form=form)]
        return _texts(TextBatch(self._model, prompts, [stated], limit, adapter=adapter))

    def generate_turns(
        self,
        inputs: Iterable[Text | StreamingInput],
        sampling: SamplingParams | None = None,
        *,
        grammar: Grammar | None = None,
        adapter: str = "",
        **fields: Any,
    ) -> Generator[Output]:
        """Generates after each turn of one request whose input comes in parts; gives the output of
        each turn. The next input is taken when that has been read; all input and output before it
        is its context, which is computed once. Leaving the iteration aborts the request.

        Args:
            inputs: texts or token ids, each of which is a turn's, or `StreamingInput`: parts before
                the end of a turn are computed while the next one is awaited. Each text is tokenized
                by itself, and only the first one gets what the tokenizer puts in front of texts.
            sampling: see `generate`; `max_tokens` and `grammar` are of each turn. Not `stop`.
            fields: fields of `SamplingParams`, in place of `sampling`.
            grammar: see `generate`.
            adapter: see `generate`.

        Raises:
            EngineError: see `generate`. A context that is full ends the iteration; input that does
                not fit any more is refused.
        """
        return run_turns(self._turns(sampling, fields, grammar, adapter), inputs)

    def generate_turns_async(
        self,
        inputs: AsyncIterable[Text | StreamingInput],
        sampling: SamplingParams | None = None,
        *,
        grammar: Grammar | None = None,
        adapter: str = "",
        **fields: Any,
    ) -> AsyncGenerator[Output]:
        """`generate_turns` on the running event loop, of inputs that come there. Several may run at
        a time."""
        return run_turns_async(self._turns(sampling, fields, grammar, adapter), inputs)

    def _turns(
        self,
        sampling: SamplingParams | None,
        fields: Mapping[str, Any],
        grammar: Grammar | None,
        adapter: str,
    ) -> TurnRequest:
        stated = _one_choice(one_sampling(sampling, fields))
        return TurnRequest(self._model, stated, _DEFAULT_COMPLETION_TOKENS, grammar, adapter)


def open_renderer(loaded: LoadedModel, model: ModelConfig) -> AnyRenderer:
    """Returns the tokenizer and chat template of a loaded model; its caller closes it.

    Raises:
        RenderError: the model has no tokenizer that can be read.
    """
    if model.skip_tokenizer_init:
        return TokenIdRenderer.open(loaded.source)
    return Renderer.open(
        loaded.source,
        model.chat_template,
        model.trust_control_tokens,
        cache_folder(model.cache_dir),
        mode=model.tokenizer_mode,
        content_format=model.chat_template_content_format,
    )


def _finished(batch: TextBatch, progress: TextIO | None) -> list[Output]:
    bar = ProgressBar(batch.num_choices, progress or sys.stderr)
    with contextlib.closing(bar), contextlib.closing(batch):
        for delta in batch:
            bar.add(tokens=len(delta.token_ids), finished=delta.finish_reason is not None)
    return batch.outputs


def _texts(batch: TextBatch) -> Generator[str]:
    with contextlib.closing(batch):
        for delta in batch:
            if delta.text:
                yield delta.text


def _one_choice(sampling: SamplingParams) -> SamplingParams:
    if sampling.n != 1:
        message = f"`n` must be 1 to stream one text, got {sampling.n}."
        raise EngineError("INVALID_ARGUMENT", message, "n")
    return sampling
