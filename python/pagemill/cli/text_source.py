"""Where text comes from: a model in this process, or a server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pagemill.config import ConfigError, SamplingConfig, option, read_environment
from pagemill.config.fields import check
from pagemill.config.sampling import stated_fields

if TYPE_CHECKING:
    from pagemill.benchmark.server_client import ServerClient

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Server: ask a running one instead of loading a model here."""

    url: str | None = option(
        None, "Address of the server, such as http://localhost:8000. Default: none is asked."
    )
    model_name: str | None = option(
        None, "The model to ask the server for. Default: the first that it serves."
    )
    client_key: str = option(
        "", "API key to send to the server. Default: PAGEMILL_API_KEY.", kind="secret"
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


class TextSource(Protocol):
    """Streams text for messages or for a prompt."""

    def chat(self, messages: Sequence[Message], sampling: SamplingConfig) -> Iterator[str]: ...

    def complete(self, prompt: str, sampling: SamplingConfig) -> Iterator[str]: ...

    def close(self) -> None: ...


class RemoteText:
    """A server's text."""

    def __init__(self, client: "ServerClient", model: str) -> None:
        self._client = client
        self._model = model

    @classmethod
    def connect(cls, config: ClientConfig) -> "RemoteText":
        """Returns the source that `config` describes, after a first word with the server.

        Raises:
          ConfigError: no URL is given.
          ClientError: the server is not there or refuses.
        """
        from pagemill.benchmark.server_client import ServerClient

        if config.url is None:
            raise ConfigError("--url is missing")
        keys = read_environment().api_keys
        key = config.client_key or (keys[0] if keys else "")
        client = ServerClient(config.url, key)
        return cls(client, config.model_name or client.first_model())

    def chat(self, messages: Sequence[Message], sampling: SamplingConfig) -> Iterator[str]:
        """Yields the answer to `messages`, piece by piece."""
        body = {"model": self._model, "messages": list(messages), **stated_fields(sampling)}
        for event in self._client.stream("/v1/chat/completions", body):
            for choice in event.get("choices", []):
                yield choice.get("delta", {}).get("content") or ""

    def complete(self, prompt: str, sampling: SamplingConfig) -> Iterator[str]:
        """Yields what follows `prompt`, piece by piece."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": 256}
        body |= stated_fields(sampling)
        for event in self._client.stream("/v1/completions", body):
            for choice in event.get("choices", []):
                yield choice.get("text") or ""

    def close(self) -> None:
        """Nothing is held open."""
