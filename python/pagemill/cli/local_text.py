"""The text of a model that is loaded into this process, as a stream."""

from collections.abc import Iterator, Sequence

import msgspec

from pagemill.cli.text_source import Message
from pagemill.config import EngineConfig, SamplingConfig
from pagemill.config.sampling import stated_fields
from pagemill.engine.llm import LLM
from pagemill.engine.sampling import SamplingParams

COMPLETION_TOKENS = 256
"""Of a prompt without --max-tokens; a chat gets all the room there is."""


class LocalText:
    """Streams one text at a time. Not thread-safe."""

    def __init__(self, llm: LLM) -> None:
        """Takes over a loaded model; `close` ends it."""
        self._llm = llm

    @classmethod
    def load(cls, config: EngineConfig) -> "LocalText":
        """Loads the configured model and its renderer."""
        return cls(LLM.from_config(config))

    def chat(self, messages: Sequence[Message], sampling: SamplingConfig) -> Iterator[str]:
        """Yields the answer to `messages`, piece by piece; raises as `LLM.stream_chat` does."""
        return self._llm.stream_chat(messages, sampling_params(sampling))

    def complete(self, prompt: str, sampling: SamplingConfig) -> Iterator[str]:
        """Yields what follows `prompt`, piece by piece; raises as `LLM.stream` does."""
        return self._llm.stream(prompt, completion_params(sampling))

    def close(self) -> None:
        """Ends the model and all processes."""
        self._llm.close()


def sampling_params(sampling: SamplingConfig) -> SamplingParams:
    """Returns the engine's form of the flags; what was not said stays unsaid."""
    return SamplingParams(**stated_fields(sampling))


def completion_params(sampling: SamplingConfig) -> SamplingParams:
    """Returns the engine's form of the flags for a prompt without a chat template."""
    params = sampling_params(sampling)
    if params.max_tokens is not None:
        return params
    return msgspec.structs.replace(params, max_tokens=COMPLETION_TOKENS)
