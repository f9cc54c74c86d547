"""The text of a model that is loaded into this process, as a stream."""

from collections.abc import Iterator, Sequence

from pagemill.cli.text_source import Message
from pagemill.config import EngineConfig, SamplingConfig
from pagemill.config.env import cache_folder
from pagemill.config.sampling import stated_fields
from pagemill.engine.fan_out import child_sampling
from pagemill.engine.limits import prompt_array, resolve_max_tokens
from pagemill.engine.loading import LoadedModel, load
from pagemill.engine.offline_batch import OfflineBatch, Request
from pagemill.engine.sampling import SamplingParams
from pagemill.render.assembly import ChoiceAssembler
from pagemill.render.renderer import Renderer

_COMPLETION_TOKENS = 256  # without --max-tokens; a chat gets all the room there is


class LocalText:
    """Streams one text at a time. Not thread-safe."""

    def __init__(self, loaded: LoadedModel, renderer: Renderer) -> None:
        """Takes over a loaded model; `close` ends it."""
        self._loaded = loaded
        self._renderer = renderer
        self._next_id = 1

    @classmethod
    def load(cls, config: EngineConfig) -> "LocalText":
        """Loads the configured model and its renderer."""
        loaded = load(config)
        try:
            model = config.model
            renderer = Renderer.open(
                loaded.source,
                model.chat_template,
                model.trust_control_tokens,
                cache_folder(model.cache_dir),
            )
            return cls(loaded, renderer)
        except BaseException:
            loaded.core.seam.engine.shutdown()
            loaded.core.close_ranks()
            raise

    def chat(self, messages: Sequence[Message], sampling: SamplingConfig) -> Iterator[str]:
        """Yields the answer to `messages`, piece by piece.

        Raises:
          RenderError: the model has no chat template, or it refuses the messages.
          EngineError: the conversation is too long, or the engine fails.
        """
        return self._stream(self._renderer.encode_chat(messages), sampling, None)

    def complete(self, prompt: str, sampling: SamplingConfig) -> Iterator[str]:
        """Yields what follows `prompt`, piece by piece; raises as `chat` does."""
        token_ids = self._renderer.encode(prompt, parse_special=True)
        return self._stream(token_ids, sampling, _COMPLETION_TOKENS)

    def close(self) -> None:
        """Ends the model and all processes."""
        self._renderer.close()
        self._loaded.core.seam.engine.shutdown()
        self._loaded.core.close_ranks()

    def _stream(
        self, token_ids: list[int], sampling: SamplingConfig, default_max_tokens: int | None
    ) -> Iterator[str]:
        loaded = self._loaded
        built = loaded.core.built
        params = loaded.defaults.fill(sampling_params(sampling))
        prompt = prompt_array(token_ids, built.vocab_size)
        (native,) = child_sampling(
            params,
            max_tokens=resolve_max_tokens(
                len(prompt),
                sampling.max_tokens,
                loaded.defaults.max_tokens or default_max_tokens,
                built.max_model_len,
            ),
            eos_token_ids=(*built.eos_token_ids, *self._renderer.eos_token_ids),
            make=loaded.core.seam.make_sampling,
        )
        assembler = ChoiceAssembler(self._renderer.detokenizer(token_ids), stop=sampling.stop or ())
        batch = OfflineBatch(loaded.core.seam, [Request(prompt, native)], 1, self._next_id)
        self._next_id += 1
        for news in batch:
            if news.error is not None:
                raise news.error
            delta = assembler.push(news)
            if delta.text:
                yield delta.text
            if assembler.finished:  # perhaps at a stop string, which the engine cannot see
                batch.stop(0)


def sampling_params(sampling: SamplingConfig) -> SamplingParams:
    """Returns the engine's form of the flags; what was not said stays unsaid."""
    return SamplingParams(**stated_fields(sampling))
