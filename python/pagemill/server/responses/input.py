"""Items of a conversation: checked, completed, and as messages of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pagemill.render.chat_messages import TEXT_PARTS
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.media import check_media, check_uuid
from pagemill.server.responses.custom_tools import custom_arguments
from pagemill.server.responses.ids import new_id
from pagemill.server.tools.call import ApprovedCall
from pagemill.server.tools.offer import function_name

Item = dict[str, Any]

_SYSTEM = "system"
_IMAGE, _AUDIO = "input_image", "input_audio"
_CHAT_TYPES = {_IMAGE: "image_url", _AUDIO: _AUDIO}  # which are also where their files are
_ROLES = {"user": "user", "assistant": "assistant", _SYSTEM: _SYSTEM, "developer": _SYSTEM}
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "mcp_list_tools": "mcpl",
    "mcp_call": "mcp",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
}
_MAY_BE_EMPTY = ("arguments", "input")
_UNFINISHED = ("incomplete", "in_progress")


def items_of(sent: str | list[Item], field: str = "input") -> list[Item]:
    """The request's `field` as complete items: with types, ids, and contents that are lists.

    Raises:
        ApiError: 400 naming the item.
    """
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    return [_item(each, f"{field}[{at}]") for at, each in enumerate(sent)]


def continues_last(items: Sequence[Item]) -> bool:
    """Whether the last item is a message of the model's that is not complete."""
    last = items[-1] if items else {}
    return last.get("role") == "assistant" and last.get("status") in _UNFINISHED


def messages_of(instructions: str | None, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Complete items as messages of a chat.

    Raises:
        ApiError: 400 for a function's output without its call.
    """
    messages = _Messages()
    if instructions:
        messages.say(_SYSTEM, [{"type": "text", "text": instructions}])
    for item in items:
        messages.add(item)
    messages.end()
    return messages.written


def approved_calls(items: Sequence[Item]) -> list[ApprovedCall]:
    """The calls that the client has approved, and that were not made."""
    made = {item.get("approval_request_id") for item in items if item["type"] == "mcp_call"}
    asked = {item["id"]: item for item in items if item["type"] == "mcp_approval_request"}
    approved: dict[str, ApprovedCall] = {}
    for item in items:
        if item["type"] == "mcp_approval_response" and item["approve"]:
            name = item["approval_request_id"]
            call = asked[name]
            if name not in made:
                approved[name] = ApprovedCall(
                    call["server_label"], call["name"], call["arguments"], name
                )
    return list(approved.values())


class _Messages:
    """Messages so far. A reasoning item belongs to what follows it."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self._reasoning = ""
        self._names: dict[str, str] = {}  # of functions, by the ids of their calls
        self._results: list[Item] = []  # of calls of one turn, which come behind the last of them
        self._approvals: dict[str, Item] = {}  # requests for them

    def add(self, item: Item) -> None:
        """Appends the next item."""
        if item["type"] not in ("mcp_call", "function_call", "custom_tool_call"):
            self._add_results()
        match item["type"]:
            case "message":
                if item["role"] == "assistant":
                    self._assistant("content")["content"] = "".join(_texts(item["content"]))
                else:
                    self.say(_ROLES[item["role"]], _chat_parts(item["content"]))
            case "reasoning":
                self._reasoning += "".join(_texts(item["content"] or item["summary"]))
            case "function_call":
                self._names[item["call_id"]] = item["name"]
                self._call(item["call_id"], item["name"], item["arguments"])
            case "custom_tool_call":
                self._names[item["call_id"]] = item["name"]
                self._call(item["call_id"], item["name"], custom_arguments(item["input"]))
            case "mcp_call":
                self._server_call(item, _outcome_of(item))
            case "mcp_approval_request":
                self._approvals[item["id"]] = item
            case "mcp_approval_response":
                self._approval(item)
            case "mcp_list_tools":
                pass  # the model sees the tools that its request has
            case _:
                self._result(item)

    def say(self, role: str, parts: Sequence[Item]) -> None:
        """Appends a message. Templates take one system message, so that the first ones are one."""
        self._end_reasoning()
        text = "\n".join(_texts(parts))
        if role == _SYSTEM and len(self.written) == 1 and self.written[0]["role"] == _SYSTEM:
            self.written[0]["content"] += "\n\n" + text
        elif role == _SYSTEM or (len(parts) == 1 and parts[0]["type"] == "text"):
            self.written.append({"role": role, "content": text})
        else:
            self.written.append({"role": role, "content": [*parts]})

    def end(self) -> None:
        """There are no more items."""
        self._add_results()
        self._end_reasoning()

    def _end_reasoning(self) -> None:
        """Reasoning that no answer follows is a message by itself."""
        if self._reasoning:
            self._assistant("content")["content"] = ""

    def _add_results(self) -> None:
        self.written += self._results
        self._results = []

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        self._assistant("").setdefault("tool_calls", []).append(call)

    def _server_call(self, item: Item, text: str) -> None:
        """A call of a tool that the server runs, and what came of it."""
        name = function_name(item["server_label"], item["name"])
        self._call(item["id"], name, item["arguments"])
        message = {"role": "tool", "tool_call_id": item["id"], "name": name, "content": text}
        self._results.append(message)

    def _approval(self, item: Item) -> None:
        call = self._approvals.get(item["approval_request_id"])
        if call is None:
            raise bad_request(
                f"`input` approves {item['approval_request_id'][:100]!r}, but no"
                " mcp_approval_request with that `id` comes before it.",
                "input",
            )
        if not item["approve"]:
            reason = f" {item['reason']}" if isinstance(item.get("reason"), str) else ""
            self._server_call(call, f"Error: The user did not approve this call.{reason}")

    def _assistant(self, part: str) -> dict[str, Any]:
        """The model's message that has room for `part`: a turn is one message."""
        last = self.written[-1] if self.written else {}
        is_open = last.get("role") == "assistant" and not self._reasoning
        if not is_open or (part and last[part] is not None):
            last = {"role": "assistant", "content": None}
            if self._reasoning:
                last["reasoning"] = self._reasoning
                self._reasoning = ""
            self.written.append(last)
        return last

    def _result(self, item: Item) -> None:
        call_id = item["call_id"]
        if call_id not in self._names:
            raise bad_request(
                f"`input` has the output of the call {call_id[:100]!r}, but no call with that"
                " `call_id` comes before it.",
                "input",
            )
        self._end_reasoning()
        output = item["output"]
        text = output if isinstance(output, str) else "\n".join(_texts(output))
        name = self._names[call_id]
        message = {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}
        self.written.append(message)


def _outcome_of(call: Item) -> str:
    """What the model reads of a call of a tool that the server ran."""
    match call.get("error"):
        case None:
            output = call.get("output")
            return output if isinstance(output, str) else "Error: The call was not finished."
        case {"message": str(message)} | str(message):
            return f"Error: {message}"
        case {"content": [*parts]}:
            texts = [part["text"] for part in parts if _is_text(part)]
            return "Error: " + "\n".join(texts)
        case _:
            return "Error: The call failed."


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(cast(Item, part).get("text"), str)


def _chat_parts(parts: Sequence[Item]) -> list[Item]:
    """The parts of a message as a chat has them."""
    return [_chat_part(part, text) for part, text in zip(parts, _texts(parts), strict=True)]


def _chat_part(part: Item, text: str) -> Item:
    kind = _CHAT_TYPES.get(part["type"])
    if kind is None:
        return {"type": "text", "text": text}
    return {"type": kind} | {key: part[key] for key in (kind, "uuid") if key in part}


def _texts(parts: Sequence[Item]) -> list[str]:
    return [part.get("text", part.get("refusal", "")) for part in parts]


def _item(sent: Item, where: str) -> Item:
    item = {key: value for key, value in sent.items() if value is not None}
    kind = item.setdefault("type", "message" if "role" in item else None)
    if not isinstance(kind, str) or kind not in _PREFIXES:
        raise bad_request(
            f"`{where}.type` is {str(kind)[:60]!r}; this server takes items of type"
            f" {', '.join(_PREFIXES)}.",
            "input",
        )
    if not isinstance(item.get("id"), str):
        item["id"] = new_id(_PREFIXES[kind])
    match kind:
        case "message":
            _complete_message(item, where)
        case "reasoning":
            for field in ("summary", "content"):
                item[field] = _parts(item.get(field, []), f"{where}.{field}", "reasoning_text")
        case "function_call":
            _require_strings(item, ("call_id", "name", "arguments"), where)
        case "custom_tool_call":
            _require_strings(item, ("call_id", "name", "input"), where)
        case "mcp_list_tools":
            _require_strings(item, ("server_label",), where)
        case "mcp_call" | "mcp_approval_request":
            _require_strings(item, ("server_label", "name", "arguments"), where)
        case "mcp_approval_response":
            _require_strings(item, ("approval_request_id",), where)
            if not isinstance(item.get("approve"), bool):
                raise bad_request(f"`{where}.approve` must be true or false.", "input")
        case _:
            _require_strings(item, ("call_id",), where)
            if not isinstance(item.get("output"), str):
                item["output"] = _parts(item.get("output"), f"{where}.output", "input_text")
    return item


def _complete_message(item: Item, where: str) -> None:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise bad_request(
            f"`{where}.role` must be one of {', '.join(_ROLES)}; results of functions are items of"
            " type function_call_output.",
            "input",
        )
    kind = "output_text" if role == "assistant" else "input_text"
    item["content"] = _parts(
        item.get("content"), f"{where}.content", kind, takes_media=role == "user"
    )
    item.setdefault("status", "completed")


def _parts(sent: Any, where: str, kind: str, *, takes_media: bool = False) -> list[Item]:
    """`sent`, a text or a list of them and of media, as parts."""
    if isinstance(sent, str):
        return [{"type": kind, "text": sent}]
    if not isinstance(sent, list):
        raise bad_request(f"`{where}` must be a string or a list of parts.", "input")
    parts = cast(list[Any], sent)
    for at, part in enumerate(parts):
        media = cast(Item, part).get("type") if takes_media and isinstance(part, dict) else None
        if media == _IMAGE:
            _check_image(cast(Item, part), f"{where}[{at}]")
        elif media == _AUDIO:
            check_media(cast(Item, part), f"{where}[{at}]", "input")
        else:
            _check_part(part, f"{where}[{at}]")
    return parts


def _check_image(part: Item, where: str) -> None:
    if part.get("file_id") is not None:
        raise bad_request(f"`{where}.file_id` is not read; send `image_url`.", "input")
    is_named, url = check_uuid(part, where, "input"), part.get("image_url")
    if not (isinstance(url, str) and url) and not (is_named and url is None):
        raise _no_string(f"{where}.image_url")


def _check_part(part: Any, where: str) -> None:
    fields = cast(Item, part) if isinstance(part, dict) else {}
    kind = fields.get("type")
    if kind not in (*TEXT_PARTS, "reasoning_text", "summary_text"):
        raise bad_request(
            f"`{where}` is of type {str(kind)[:60]!r}; this model takes parts of text only.",
            "input",
        )
    field = TEXT_PARTS.get(kind, "text")
    if not isinstance(fields.get(field), str):
        raise _no_string(f"{where}.{field}")


def _require_strings(item: Item, fields: Sequence[str], where: str) -> None:
    for field in fields:
        if not isinstance(item.get(field), str) or not (item[field] or field in _MAY_BE_EMPTY):
            raise _no_string(f"{where}.{field}")


def _no_string(where: str) -> ApiError:
    return bad_request(f"`{where}` must be a string.", "input")
