"""What answers a request for a response: one generation, or several with calls of tools between."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.engine.sampling import SamplingParams
from pagemill.server.access.caller import Caller
from pagemill.server.chat import start_chat
from pagemill.server.chat_sampling import chat_sampling
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.generation import Generation
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.responses import ResponsesRequest
from pagemill.server.responses.input import Item, approved_calls
from pagemill.server.responses.request import chat_request, renamed
from pagemill.server.responses.tool_offers import offers_of
from pagemill.server.tools.loop import LoopOptions, ToolLoop
from pagemill.server.tools.servers import ToolServers

_MAX_CALLS = 32  # of tools that the server runs, in a response


async def begin(
    pipeline: Pipeline,
    servers: ToolServers,
    body: ResponsesRequest,
    items: Sequence[Item],
    caller: Caller,
) -> tuple[Generation | ToolLoop, SamplingParams]:
    """What answers `items`: a generation that was submitted, or a loop that begins when it is read.

    Args:
        pipeline: of the model.
        servers: those of the operator.
        body: the request.
        items: the conversation, with the request's own.
        caller: of the request.

    Raises:
        ApiError: the request cannot be served.
    """

    async def start(turn: ChatRequest) -> Generation:
        with renamed():
            return await start_chat(pipeline, turn, caller)

    request = chat_request(body, items)
    offers = offers_of(body.tools, servers.by_label, items, caller)
    approved = approved_calls(items)
    if not offers:
        if approved:
            raise bad_request(
                "`input` approves a call of a tool, but `tools` has no MCP server that has it.",
                "tools",
            )
        generation = await start(request)
        return generation, generation.sampling
    with renamed():
        sampling = chat_sampling(request, pipeline.model.max_logprobs)
    held = caller.charge(0)  # between two generations the request is in progress, too
    try:
        servers.enter()
    except ApiError:
        held.settle(0)
        raise

    def leave() -> None:
        servers.leave()
        held.settle(0)

    options = LoopOptions(
        max_calls=min(body.max_tool_calls or _MAX_CALLS, _MAX_CALLS),
        deadline=pipeline.deadline(body.timeout, caller),
        on_call=pipeline.metrics.tool_called,
        on_close=leave,
    )
    loop = ToolLoop(request, start, offers, options, approved)
    return loop, pipeline.model.defaults.fill(sampling)
