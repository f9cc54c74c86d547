"""From messages to the native engine: requests, and the errors that it raises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native import NativeBindings, NativeClient
from pagemill.engine.output_functions import NO_FUNCTIONS, OutputFunctions, continuing, joined
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.token_limits import LimitedMatcherFactory
from pagemill.engine.token_matcher import TokenMatcherFactory
from pagemill.inputs.rendered_prompt import InputChunk, RenderedPrompt
from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.structured.grammar import Grammar, GrammarError

# From here on, room is counted in steps of as much: clients elsewhere need no message a request.
_COARSE_ROOM = 64
_NO_TIMESTAMPS = -1  # grammar::TranscriptRules::kNoTimestamps
_REQUEST_FIELDS = frozenset(SamplingParams.__struct_fields__) | {"priority", "kv_transfer_params"}


def submit_all(
    bindings: NativeBindings,
    client: NativeClient,
    requests: Sequence[EngineRequest],
    functions: Sequence[OutputFunctions],
) -> None:
    """Submits all of `requests`, or none: those before a refused one are aborted. `functions` are
    what `output_functions` returned for them.

    Raises:
        EngineError: the refusal.
    """
    submitted: list[int] = []
    try:
        for request, its_functions in zip(requests, functions, strict=True):
            for choice, native in native_requests(bindings, request, its_functions):
                client.submit(native)
                submitted.append(choice.id)
    except BaseException as error:
        for earlier in submitted:
            client.abort(earlier)
        if isinstance(error, bindings.status_error):
            raise to_engine_error(error) from error
        raise


def functions_take_time(requests: Sequence[EngineRequest]) -> bool:
    """Whether `output_functions` of `requests` may take seconds: then call it in a thread."""
    return any(request.grammar or request.plugins for request in requests)


def output_functions(
    bindings: NativeBindings, requests: Sequence[EngineRequest]
) -> list[OutputFunctions]:
    """What each of `requests` says of its outputs: compiles grammars, and makes what plugins make.

    Raises:
        EngineError: a grammar is none, or a plugin is unknown, refuses its arguments or fails.
    """
    return [_output_functions(bindings, request) for request in requests]


def adapters_on_demand(bindings: NativeBindings, requests: Sequence[EngineRequest]) -> set[str]:
    """Adapters that have to be required (`require_adapter`) before `requests` are submitted."""
    if bindings.adapters is None or not bindings.adapters.on_demand:
        return set()
    return {request.adapter for request in requests if request.adapter}


def native_room(bindings: NativeBindings, client: NativeClient, max_unfinished: int) -> int:
    """`EngineClient.room` of an engine with at most `max_unfinished` requests."""
    try:
        client.check_room()
    except bindings.status_error as error:
        raise to_engine_error(error) from error
    stats = bindings.engine.stats()
    free = max_unfinished - stats.num_running - stats.num_waiting
    return max(1, free if free < _COARSE_ROOM else free - free % _COARSE_ROOM)


def native_requests(
    bindings: NativeBindings,
    request: EngineRequest,
    functions: OutputFunctions = NO_FUNCTIONS,
) -> Iterator[tuple[ChoiceRequest, object]]:
    """Each choice of `request` as the native engine takes it. All share the features of media.
    `functions` are those of the caller, and of `output_functions`.

    Raises:
        EngineError: a field does not fit the native type, no adapter has the name, that of its
            media has been unloaded, or the prompt does not begin with what it has to.
    """
    if bindings.front is not None:
        bindings.front.check(request)
    rules = request.transcript
    adapter = _adapter_id(bindings, request)
    new_token_matcher = functions.token_matcher
    if request.limits is not None:
        new_token_matcher = LimitedMatcherFactory(request.limits, new_token_matcher)
    try:
        media = _native_media(bindings, request.prompt, adapter)
        for choice in request.choices:
            fields: dict[str, Any] = {"pooling": True}
            if choice.sampling is not None:
                sampling = choice.sampling
                if rules is not None and rules.timestamp_begin is not None:
                    sampling = sampling | {"timestamp_begin": rules.timestamp_begin}
                fields = {"sampling": bindings.types.SamplingParams(**sampling)}
            native = bindings.types.Request(
                id=choice.id,
                prompt_token_ids=request.prompt.token_ids,
                second_text_start=request.prompt.second_text_start,
                media=media,
                priority=request.priority,
                cache_salt=request.cache_salt,
                tenant=request.tenant,
                starts_held=request.starts_held,
                streaming_input=request.streaming_input,
                new_token_matcher=new_token_matcher,
                logits_processor=functions.logits_processor,
                deadline_us=request.deadline_us,
                kv_transfer_params=request.kv_transfer_params,
                adapter=adapter,
                return_routed_experts=request.return_routed_experts,
                **fields,
            )
            yield choice, native
    except (TypeError, ValueError, OverflowError) as error:
        raise EngineError(
            "INVALID_ARGUMENT", f"A parameter is out of range: {_first_line(error)}"
        ) from error


def _adapter_id(bindings: NativeBindings, request: EngineRequest) -> int:
    """That of the adapter which the request names; of one that names none, of its media's."""
    name = request.adapter
    if not name:
        kinds = {item.kind for item in request.prompt.media if item.kind is not None}
        return bindings.adapters.id_for_media(kinds) if kinds and bindings.adapters else 0
    if bindings.adapters is None:
        raise EngineError("NOT_FOUND", f"The model `{name[:200]}` does not exist.", "model")
    return bindings.adapters.id_of(name)


def _output_functions(bindings: NativeBindings, request: EngineRequest) -> OutputFunctions:
    functions = joined(_functions(bindings, request))
    if request.num_written:
        return continuing(functions, request.num_written, request.prompt.token_ids)
    return functions


def _functions(bindings: NativeBindings, request: EngineRequest) -> list[OutputFunctions]:
    """Those of what `request` says of its outputs."""
    functions: list[OutputFunctions] = []
    if request.grammar is not None:
        functions.append(OutputFunctions(_matcher_factory(bindings, request.grammar)))
    elif request.transcript is not None:
        functions.append(OutputFunctions(_transcript_matchers(bindings, request.transcript)))
    opens = bindings.grammars.vocabulary
    plugins = bindings.output_plugins
    return functions + [plugins.functions(each, opens) for each in request.plugins]


def _matcher_factory(bindings: NativeBindings, grammar: Grammar) -> TokenMatcherFactory:
    try:
        return bindings.grammars.factory(grammar)
    except GrammarError as error:
        raise EngineError("INVALID_ARGUMENT", f"The grammar is refused: {error}") from error


def _transcript_matchers(bindings: NativeBindings, rules: TranscriptRules) -> TokenMatcherFactory:
    begin = rules.timestamp_begin
    try:
        return bindings.types.transcript_matchers(
            rules.vocab_size,
            rules.end,
            rules.suppressed,
            rules.suppressed_first,
            _NO_TIMESTAMPS if begin is None else begin,
            rules.max_first_timestamp,
        )
    except bindings.status_error as error:
        raise to_engine_error(error) from error


def native_chunk(bindings: NativeBindings, chunk: InputChunk) -> object:
    """A chunk as the native engine takes it.

    Raises:
        EngineError: it does not fit the native type, or the model takes no more media.
    """
    if bindings.front is not None:
        bindings.front.check_chunk(chunk)
    if bindings.adapters is not None and chunk.prompt.media:
        message = "Media cannot be appended to a request while the server has adapters."
        raise EngineError("INVALID_ARGUMENT", message, "media")
    try:
        return bindings.types.InputChunk(
            chunk.prompt.token_ids.tolist(),
            part=chunk.part,
            media=_native_media(bindings, chunk.prompt, adapter=0),
        )
    except bindings.status_error as error:
        raise to_engine_error(error) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise EngineError(
            "INVALID_ARGUMENT", f"The input does not fit: {_first_line(error)}", "media"
        ) from error


def _native_media(bindings: NativeBindings, prompt: RenderedPrompt, adapter: int) -> list[object]:
    items: list[object] = []
    adapters = bindings.adapters if adapter else None
    for item in prompt.media:
        features = item.features
        at = features.positions
        positions = None if at is None else (at.rows, at.tokens, at.next)
        items.append(
            bindings.types.MediaItem(
                adapters.media_id(item.content_id, adapter) if adapters else item.content_id,
                item.first_token,
                features.tokens,
                features.rows,
                positions,
                features.row_tokens,
                features.placement,
                features.shares,
                features.encoder,
            )
        )
    return items


def to_engine_error(error: Exception) -> EngineError:
    """The extension's StatusError as an EngineError; `param` is the field its sentence names."""
    code = str(getattr(error, "code"))  # noqa: B009  (the extension's type is only known to it)
    message = str(getattr(error, "message"))  # noqa: B009
    word = re.match(r"\W*([a-z_]+)", message)
    param = word[1] if word is not None and word[1] in _REQUEST_FIELDS else None
    return EngineError(code, message, param, int(getattr(error, "retry_after_s")))  # noqa: B009


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
