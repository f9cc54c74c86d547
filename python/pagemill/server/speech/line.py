"""Audio in lines of batch files: they have the URL of a file in place of the file."""

from __future__ import annotations

from typing import Any

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.errors import bad_request
from pagemill.server.state import ServerState

_URL = "file_url"
_JSON_FORMATS = ("json", "verbose_json", "diarized_json")


async def invoke_line(
    server: ServerState, endpoint: Endpoint, fields: dict[str, Any], caller: Caller
) -> Answer:
    """As `invoke`, for a line of a batch file, whose answer is JSON.

    Raises:
        ApiError: as `invoke`; 400: the audio cannot be fetched; 429: too much is.
    """
    if endpoint.transport is not Transport.AUDIO_FORM or not server.has_task(endpoint.tasks):
        return await invoke(server, endpoint, fields, caller)
    caller.require(endpoint.scope)  # before anything is fetched
    sent = dict(fields)
    url = sent.pop(_URL, None)
    if not isinstance(url, str):
        raise bad_request(
            f"`{_URL}` must be a data: URL of audio, or one of a host that the server allows.", _URL
        )
    if "file" in sent:
        raise bad_request(f"`file`: a batch file has none; send `{_URL}`.", "file")
    if sent.get("response_format", "json") not in _JSON_FORMATS:
        raise bad_request(
            f"`response_format` must be one of {', '.join(_JSON_FORMATS)} in a batch file.",
            "response_format",
        )
    speech = server.models.speech
    async with speech.uploads.upload(0, caller.tenant) as upload:
        await upload.write(await speech.fetched(url, _URL, caller.tenant))
        return await invoke(server, endpoint, {**sent, "file": upload}, caller)
