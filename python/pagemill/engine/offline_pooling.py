"""What an `LLM` does with models that pool: vectors, classes and scores of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TextIO

import numpy as np

from pagemill.engine.encoded_media import check_kind, form_of, item_prompts, rows_of
from pagemill.engine.loading import LoadedModel
from pagemill.engine.offline_batch import OfflineQueue
from pagemill.engine.offline_media import AudioSource, ImageSource, VideoSource
from pagemill.engine.offline_prompts import OfflinePrompts, PoolingInput, PromptMedia
from pagemill.engine.offline_scores import Content, OfflineScores
from pagemill.engine.outputs import EngineError
from pagemill.engine.pooled_batch import pool
from pagemill.engine.text_batch import TextModel
from pagemill.inputs.io_processor import IOProcessor
from pagemill.inputs.late_interaction import LateInteraction
from pagemill.inputs.media_embeds import embeds_param
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import activated
from pagemill.inputs.task import Pooled, Task
from pagemill.render.token_id_renderer import AnyRenderer


class OfflinePooling:
    """The methods of `LLM` for models that pool."""

    _loaded: LoadedModel
    _renderer: AnyRenderer
    _prompts: OfflinePrompts
    _queue: OfflineQueue
    _model: TextModel
    _io_processor: IOProcessor | None
    _late_interaction: LateInteraction

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of a classifier's classes; none of another model."""
        pooled = self._loaded.core.built.pooled
        return () if pooled is None else pooled.labels

    def embed(
        self,
        texts: PoolingInput | Sequence[PoolingInput],
        *,
        images: Sequence[Sequence[ImageSource]] | None = None,
        audios: Sequence[Sequence[AudioSource]] | None = None,
        videos: Sequence[Sequence[VideoSource]] | None = None,
        progress: TextIO | None = None,
    ) -> np.ndarray:
        """Embeds each text: float32 `[texts, dim]`.

        Args:
            texts: a text, token ids, or `{"content": parts}`, a user's message, which the chat
                template writes (docs/images.md); or a list of them.
            images: those of each text, which has a placeholder for each; see `generate`.
            audios: see `generate`.
            videos: see `generate`.
            progress: see `generate`.

        Raises:
            RenderError: the chat template refuses a content.
            EngineError: a text is too long, media do not fit, or the model does not embed texts.
        """
        pooled = self._pooled(Task.EMBED)
        media: PromptMedia = {"image": images, "audio": audios, "video": videos}
        return np.stack(self._pool(pooled, self._prompts.to_pool(texts, media), progress))

    def classify(
        self,
        texts: PoolingInput | Sequence[PoolingInput],
        *,
        images: Sequence[Sequence[ImageSource]] | None = None,
        audios: Sequence[Sequence[AudioSource]] | None = None,
        videos: Sequence[Sequence[VideoSource]] | None = None,
        progress: TextIO | None = None,
    ) -> np.ndarray:
        """The probability of each class of `labels`, for each text: float32 `[texts, classes]`. The
        arguments are those of `embed`.

        Raises:
            RenderError, EngineError: see `embed`; or the model does not classify texts.
        """
        pooled = self._pooled(Task.CLASSIFY)
        media: PromptMedia = {"image": images, "audio": audios, "video": videos}
        logits = np.stack(self._pool(pooled, self._prompts.to_pool(texts, media), progress))
        return activated(logits, pooled.activation)

    def encode(
        self,
        texts: PoolingInput | Sequence[PoolingInput],
        *,
        images: Sequence[Sequence[ImageSource]] | None = None,
        audios: Sequence[Sequence[AudioSource]] | None = None,
        videos: Sequence[Sequence[VideoSource]] | None = None,
        progress: TextIO | None = None,
    ) -> list[np.ndarray]:
        """What a model that pools gives for each text: float32, a row, or one for each token.
        Vectors, or of a classifier probabilities. The arguments are those of `embed`.

        Raises:
            RenderError, EngineError: see `embed`; or the model generates.
        """
        pooled = self._pooled(
            *(task for task in Task if task.pools and task is not Task.MEDIA_EMBED)
        )
        media: PromptMedia = {"image": images, "audio": audios, "video": videos}
        rows = self._pool(pooled, self._prompts.to_pool(texts, media), progress)
        return [activated(row, pooled.activation) for row in rows]

    def encode_media(
        self,
        kind: Literal["image", "audio"],
        media: Sequence[ImageSource | AudioSource],
        *,
        progress: TextIO | None = None,
    ) -> list[dict[str, Any]]:
        """What the encoder makes of each image or audio, for a model that was opened with
        `mm_encoder_only`: objects that `generate` and `chat` of one with `enable_mm_embeds` take
        in place of these (docs/encoders_apart.md).

        Raises:
            EngineError: one does not fit the model, or the model has not been opened so.
        """
        pooled = self._pooled(Task.MEDIA_EMBED)
        check_kind(kind)
        encoded: list[dict[str, Any]] = []
        for prepared, placed in self._prompts.placed_alone(kind, media):
            tokens = self._pool(pooled, item_prompts(placed), progress)
            rows = rows_of(placed, tokens)
            encoded.append({embeds_param(kind): rows, **form_of(prepared)})
        return encoded

    def encode_data(self, data: Any) -> Any:
        """What the plugin `io_processor_plugin` makes of `data`, with the model's rows for the
        prompts that it writes.

        Raises:
            EngineError: a prompt is too long, or the model was opened without a plugin.
        """
        processor = self._io_processor
        if processor is None:
            message = "open the model with io_processor_plugin, the name of an installed plugin"
            raise EngineError("FAILED_PRECONDITION", message)
        parsed = processor.parse_data(data)
        rows = self.encode(processor.pre_process(parsed, ""))
        return processor.post_process(parsed, rows, "")

    def score(
        self,
        query: Content,
        documents: Content | Sequence[Content],
        *,
        instruction: str = "",
        progress: TextIO | None = None,
    ) -> np.ndarray:
        """How well each document fits the query: float32 `[documents]`. Both are texts, or
        `{"content": parts}`, whose parts may have images.

        A classifier with one class reads both together, by its chat template if that is one for
        pairs of texts, which may take an `instruction`; vectors of both, or of their tokens, are
        compared (`inputs.scoring.likeness`).

        Raises:
            RenderError: the chat template refuses a content.
            EngineError: a text is too long, media do not fit, or the model does nothing of this.
        """
        listed = [documents] if isinstance(documents, str | Mapping) else list(documents)
        pooled = self._pooled(Task.CLASSIFY, Task.EMBED, Task.TOKEN_EMBED)
        pooler = partial(self._pool, pooled, progress=progress)
        rules = self._late_interaction
        scores = OfflineScores(self._renderer, self._prompts, rules, pooled, pooler)
        return scores.score(query, listed, instruction)

    def _pooled(self, *tasks: Task) -> Pooled:
        pooled = self._loaded.core.built.pooled
        if pooled is None or pooled.task not in tasks:
            loaded = Task.GENERATE if pooled is None else pooled.task
            wanted = "task=" + " or ".join(tasks)
            if Task.MEDIA_EMBED in tasks:
                wanted = "mm_encoder_only=True"
            raise EngineError(
                "FAILED_PRECONDITION", f"the model is loaded for {loaded}; this needs {wanted}"
            )
        return pooled

    def _pool(
        self, pooled: Pooled, prompts: Sequence[RenderedPrompt], progress: TextIO | None
    ) -> list[np.ndarray]:
        return pool(self._loaded.core, self._queue, pooled, prompts, self._model.ids, progress)
