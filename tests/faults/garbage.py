"""Requests that no client should send: a seeded stream of them, for the fuzz test."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

NUMBERS = (
    *(-1, 0, 1, -(2**31), 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, -1e308),
    *(0.1, -0.0, 1.5, 1e-300),
)
TEXTS = (
    "",
    "x",
    "\x00",
    "é☃𝄞",
    "<|im_end|>",
    "null",
    "a" * 50_000,
    " " * 10_000,
    "\u202e",
    "💥" * 999,
)

_SAMPLING_FIELDS = (
    *("n", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "logit_bias", "seed", "min_tokens", "max_tokens", "ignore_eos", "stop"),
    *("stop_token_ids", "include_stop_str_in_output", "skip_special_tokens", "prompt_logprobs"),
    *("truncate_prompt_tokens", "return_token_ids", "return_tokens_as_token_ids", "cache_salt"),
    *("priority", "request_id", "stream", "stream_options", "model", "logprobs", "echo", "user"),
    *("response_format", "structured_outputs", "bad_words", "allowed_token_ids", "no_such_field"),
)
_COMPLETION_FIELDS = (*_SAMPLING_FIELDS, "prompt", "suffix", "best_of", "add_special_tokens")
_CHAT_FIELDS = (
    *_SAMPLING_FIELDS,
    *("messages", "top_logprobs", "max_completion_tokens", "tools", "tool_choice", "documents"),
    *("chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"),
    *("add_special_tokens", "reasoning_effort", "functions", "modalities"),
)
_RESPONSE_FIELDS = (
    *_SAMPLING_FIELDS,
    *("input", "instructions", "previous_response_id", "store", "background", "tools", "metadata"),
    *("tool_choice", "max_output_tokens", "text", "reasoning", "include", "truncation"),
)
_MESSAGES_FIELDS = (
    *("messages", "model", "max_tokens", "system", "tools", "tool_choice", "thinking", "stream"),
    *("output_config", "stop_sequences", "temperature", "top_k", "top_p", "cache_salt", "timeout"),
    *("kv_transfer_params", "chat_template_kwargs", "metadata", "request_id", "no_such_field"),
)
_COHERE_FIELDS = (
    *("messages", "model", "max_tokens", "stream", "tools", "strict_tools", "tool_choice"),
    *("documents", "citation_options", "response_format", "safety_mode", "stop_sequences", "seed"),
    *("temperature", "frequency_penalty", "presence_penalty", "k", "p", "logprobs", "thinking"),
    *("priority", "kv_transfer_params", "chat_template_kwargs", "no_such_field"),
)
_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": "Hi"},
    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    {"type": "tool_result", "tool_use_id": "c", "content": "x"},
    {"type": "document", "title": "t", "source": {"type": "text", "data": "x"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}},
    {"type": "file", "file": {"filename": "a.txt", "file_data": "eA=="}},
    {"type": "thinking", "thinking": "x"},
)
_BLOCK_FIELDS = (
    *("type", "text", "id", "name", "input", "tool_use_id", "content", "source", "title"),
    *("image_url", "file", "thinking", "is_error", "document"),
)
_ITEM_FIELDS = ("type", "role", "content", "id", "status", "call_id", "name", "arguments", "output")
_ITEMS: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
)
_EMBEDDING_FIELDS = (
    *("input", "model", "encoding_format", "dimensions", "truncate_prompt_tokens", "messages"),
    *("embed_dtype", "endianness"),
)
_DERENDER_FIELDS = (
    *("generate_response", "generate_responses", "generate_chunk", "stream", "stream_state"),
    *("chat_request", "completion_request", "model", "request_id", "prompt_token_ids"),
)
_GENERATED: dict[str, Any] = {"choices": [{"index": 0, "token_ids": [5], "finish_reason": "stop"}]}

_BASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "/v1/completions": ({"prompt": "Hello", "max_tokens": 1}, _COMPLETION_FIELDS),
    "/v1/chat/completions": (
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
        _CHAT_FIELDS,
    ),
    "/v1/responses": ({"input": "Hi", "max_output_tokens": 1}, _RESPONSE_FIELDS),
    "/v1/messages": (
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
        _MESSAGES_FIELDS,
    ),
    "/v2/chat": (
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
        _COHERE_FIELDS,
    ),
    "/v1/embeddings": ({"input": "Hello"}, _EMBEDDING_FIELDS),
    "/v1/chat/completions/derender": (
        {
            "chat_request": {"messages": [{"role": "user", "content": "Hi"}]},
            "generate_response": _GENERATED,
            "generate_chunk": _GENERATED,
        },
        _DERENDER_FIELDS,
    ),
    "/v1/completions/derender": (
        {
            "completion_request": {"prompt": "Hi"},
            "generate_response": _GENERATED,
            "generate_chunk": _GENERATED,
        },
        _DERENDER_FIELDS,
    ),
}
PATHS = tuple(_BASES)


@dataclass(frozen=True)
class Shot:
    """One request. `must_fail`: the body can never be a valid request."""

    path: str
    body: bytes
    content_type: str = "application/json"
    must_fail: bool = False


def shots(seed: int, count: int) -> list[Shot]:
    """`count` requests; the same for the same seed."""
    rng = random.Random(seed)
    return [_shot(rng) for _ in range(count)]


def _shot(rng: random.Random) -> Shot:
    path = rng.choice(PATHS)
    kind = rng.random()
    if kind < 0.15:
        return Shot(path, _no_json(rng), must_fail=True)
    base, fields = _BASES[path]
    body = json.loads(json.dumps(base))
    if kind < 0.25:
        del body[next(iter(base))]  # the one required field
        return Shot(path, json.dumps(body).encode(), must_fail=True)
    if kind < 0.30:
        return Shot(path, json.dumps(body).encode(), content_type="text/plain", must_fail=True)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        body[rng.choice(fields)] = _value(rng, 0)
    if kind < 0.45 and "messages" in body:
        body["messages"] = [_message(rng) for _ in range(rng.randrange(1, 4))]
    if kind < 0.60 and path == "/v1/responses":
        body["input"] = [_item(rng) for _ in range(rng.randrange(1, 5))]
    return Shot(path, json.dumps(body).encode())


def _item(rng: random.Random) -> object:
    item = dict(rng.choice(_ITEMS))
    if rng.random() < 0.5:
        item[rng.choice(_ITEM_FIELDS)] = _value(rng, 1)
    return item


def _message(rng: random.Random) -> object:
    if rng.random() < 0.2:
        return _value(rng, 1)
    keys = ("role", "content", "name", "tool_calls", "tool_call_id")
    message: dict[str, Any] = {"role": "user", "content": "Hi"}
    if rng.random() < 0.4:
        message["role"] = rng.choice(("user", "user", "assistant", "tool", "system"))
        message["content"] = [_block(rng) for _ in range(rng.randrange(1, 4))]
        return message
    for _ in range(rng.randrange(1, 3)):
        message[rng.choice(keys)] = _value(rng, 1)
    return message


def _block(rng: random.Random) -> object:
    """A part of a message, in the form of one API or another."""
    block = dict(rng.choice(_BLOCKS))
    if rng.random() < 0.5:
        block[rng.choice(_BLOCK_FIELDS)] = _value(rng, 1)
    return block


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth < 4 else 5)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind in (1, 2):
        return rng.choice(NUMBERS)
    if kind in (3, 4):
        return rng.choice(TEXTS)
    if kind in (5, 6):
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return [rng.choice((-1, 0, 5, 49151, 49152, 2**31)) for _ in range(rng.randrange(1, 40))]
    return {rng.choice(TEXTS[:7]): _value(rng, depth + 1) for _ in range(rng.randrange(4))}


def _no_json(rng: random.Random) -> bytes:
    valid = json.dumps({"prompt": "Hello", "max_tokens": 1}).encode()
    kind = rng.randrange(7)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 200)) + b"\xff"
    if kind == 1:
        return valid[: rng.randrange(len(valid))]
    if kind == 2:
        return b"[" * rng.choice((10, 1000, 100_000))
    if kind == 3:
        return b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b', "messages": 1, "input": 1}'
    if kind == 4:
        return rng.choice((b"[]", b"5", b"null", b'"prompt"', b"NaN", b"true"))
    if kind == 5:
        return b'{"prompt": "\\ud800", "messages": "\\ud800", "input": "\\ud800"}'
    return b'{"messages": 1, "input": {}, "prompt": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}"
