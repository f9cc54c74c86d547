"""From messages to the native engine: requests, and the errors that it raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pagemill.engine.messages import EngineRequest
from pagemill.engine.native import NativeClient, NativeSeam
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams

_REQUEST_FIELDS = frozenset(SamplingParams.__struct_fields__) | {"priority", "kv_transfer_params"}


def submit_all(seam: NativeSeam, client: NativeClient, requests: Sequence[EngineRequest]) -> None:
    """Submits all of `requests`, or none: those before a refused one are aborted.

    Raises:
        EngineError: the refusal.
    """
    for count, request in enumerate(requests):
        try:
            client.submit(_native_request(seam, request))
        except BaseException as error:
            for earlier in requests[:count]:
                client.abort(earlier.id)
            if isinstance(error, seam.status_error):
                raise to_engine_error(error) from error
            raise


def to_engine_error(error: Exception) -> EngineError:
    """The extension's StatusError as an EngineError; `param` is the field its sentence names."""
    code = str(getattr(error, "code"))  # noqa: B009  (the extension's type is only known to it)
    message = str(getattr(error, "message"))  # noqa: B009
    word = re.match(r"\W*([a-z_]+)", message)
    param = word[1] if word is not None and word[1] in _REQUEST_FIELDS else None
    return EngineError(code, message, param, int(getattr(error, "retry_after_s")))  # noqa: B009


def _native_request(seam: NativeSeam, request: EngineRequest) -> Any:
    try:
        fields: dict[str, Any] = {"pooling": True}
        if request.sampling is not None:
            fields = {"sampling": seam.make_sampling(**request.sampling)}
        return seam.make_request(
            id=request.id,
            prompt_token_ids=request.token_ids,
            priority=request.priority,
            cache_salt=request.cache_salt,
            tenant=request.tenant,
            starts_held=request.starts_held,
            streaming_input=request.streaming_input,
            kv_transfer_params=request.kv_transfer_params,
            **fields,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise EngineError(
            "INVALID_ARGUMENT", f"A sampling parameter is out of range: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
