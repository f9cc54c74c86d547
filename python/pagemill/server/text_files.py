"""Files of text, and PDF files, in messages: they become parts of text, below their names.

files = TextFiles(server, caller, "messages")
unread = files.unread()                     # to check the rest of the request first
without = await unread.in_messages(messages)
if unread.num_files: ...
messages = await files.in_messages(messages)
items = await TextFiles(server, caller, "input").in_items(items)
request = await TextFiles(server, caller, "messages").in_documents(request)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from pagemill.render.media.data_url import is_data_url
from pagemill.render.pdf.pages import is_pdf
from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.file_text import content_of_url, plain_text
from pagemill.server.pdf_files import PdfBudget
from pagemill.server.protocol.messages import (
    ContentBlock,
    CountTokensRequest,
    DocumentBlock,
    DocumentSource,
    ToolResultBlock,
)
from pagemill.server.state import ServerState

MAX_FILES = 1024
"""Of one request: each may be looked up by the one thread that has the list of stored files."""
_CHAT_PART = "file"
_ITEM_PART = "input_file"

MessagesT = TypeVar("MessagesT", bound=CountTokensRequest)
BlockT = TypeVar("BlockT", bound=ContentBlock)


class TextFiles:
    """Those of one request, whose field `param` has them, `MAX_FILES` at most. Stored files that it
    names have together at most as many bytes as a body."""

    def __init__(self, server: ServerState | None, caller: Caller, param: str) -> None:
        """`server` None: nothing is stored, and no PDF files are read."""
        self._server = server
        self._caller = caller
        self._param = param
        self._reads = True
        loaded = None if server is None else server.loaded
        self._rendering = None if loaded is None else loaded.rendering
        self.num_files = 0
        """Those met so far."""
        self._pdfs = PdfBudget(caller.tenant)
        # Of stored and PDF files of one conversation, whose texts may be far larger than a request.
        self._least_tokens = 0
        self._max_bytes = self._left = 0 if server is None else server.config.max_body_bytes

    def unread(self) -> TextFiles:
        """The same, except that no file is looked up or read: each has the text ""."""
        files = TextFiles(self._server, self._caller, self._param)
        files._reads = False
        return files

    async def in_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Messages of a chat, with a part of text in place of each file.

        Raises:
            ApiError: a file cannot be read, or is no text, or those that are stored, or are PDFs,
                cannot fit.
        """
        self._least_tokens = 0
        return [
            await self._in_content(message, f"{self._param}[{at}].content", _CHAT_PART, "text")
            for at, message in enumerate(messages)
        ]

    async def in_items(self, items: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """The same for items of a response.

        Raises:
            ApiError: as of `in_messages`.
        """
        if isinstance(items, str):
            return items
        return [
            await self._in_content(item, f"{self._param}[{at}].content", _ITEM_PART, "input_text")
            for at, item in enumerate(items)
        ]

    async def in_documents(self, request: MessagesT) -> MessagesT:
        """A request of Anthropic's API, with text as the source of each document that is a file.

        Raises:
            ApiError: as of `in_messages`.
        """
        messages = [
            message
            if isinstance(message.content, str)
            else msgspec.structs.replace(
                message,
                content=await self._in_blocks(message.content, f"{self._param}[{at}].content"),
            )
            for at, message in enumerate(request.messages)
        ]
        return msgspec.structs.replace(request, messages=messages)

    async def _in_blocks(self, blocks: Sequence[BlockT], where: str) -> list[BlockT]:
        return [
            await self._in_block(block, f"{where}[{number}]") for number, block in enumerate(blocks)
        ]

    async def _in_block(self, block: BlockT, where: str) -> BlockT:
        if isinstance(block, DocumentBlock) and block.source.type == "base64":
            self._count_file()
            url = f"data:;base64,{block.source.data}"
            text = await self._text_of_url(url, f"{where}.source")
            return msgspec.structs.replace(block, source=DocumentSource("text", data=text))
        if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
            content = await self._in_blocks(block.content, f"{where}.content")
            return msgspec.structs.replace(block, content=content)
        return block

    async def _in_content(
        self, message: dict[str, Any], where: str, kind: str, text_kind: str
    ) -> dict[str, Any]:
        sent = message.get("content")
        parts = cast(list[Any], sent) if isinstance(sent, list) else []
        if not any(_is_of(part, kind) for part in parts):
            return message
        content = [
            {"type": text_kind, "text": await self._text(part, f"{where}[{number}]")}
            if _is_of(part, kind)
            else part
            for number, part in enumerate(parts)
        ]
        return {**message, "content": content}

    async def _text(self, part: dict[str, Any], where: str) -> str:
        self._count_file()
        if part["type"] == _CHAT_PART:
            part, where = part.get(_CHAT_PART) or {}, f"{where}.{_CHAT_PART}"
        data, file_id, name = (
            _string(part, field, where, self._param)
            for field in ("file_data", "file_id", "filename")
        )
        if data is not None and file_id is None:
            url = data if is_data_url(data) else f"data:;base64,{data}"
            text = await self._text_of_url(url, where)
        elif file_id is not None and data is None:
            stored_name, text = await self._stored(file_id, where)
            name = name or stored_name
        else:
            raise bad_request(
                f"`{where}` must have either `file_data`, the file in base64, or `file_id`; nothing"
                " is fetched.",
                self._param,
            )
        return f"{name}\n{text}" if name else text

    def _count_file(self) -> None:
        self.num_files += 1
        if self.num_files > MAX_FILES:
            raise bad_request(
                f"`{self._param}` has more than {MAX_FILES} files: join some of them.", self._param
            )

    async def _text_of_url(self, url: str, where: str) -> str:
        """The text of a file that is in the request."""
        if not self._reads:
            return ""
        content = await asyncio.to_thread(content_of_url, url, where, self._param)
        if is_pdf(content):
            return await self._text_of_pdf(content, where)
        return await asyncio.to_thread(plain_text, content, where, self._param)

    async def _text_of_pdf(self, content: bytes, where: str) -> str:
        if self._server is None:
            raise bad_request(f"`{where}`: no PDF files are read here.", self._param)
        text = await self._server.pdf_files.text(content, self._pdfs, where, self._param)
        return await asyncio.to_thread(self._fitting, text)

    async def _stored(self, file_id: str, where: str) -> tuple[str, str]:
        """The name and the text of a file that the caller has uploaded."""
        if self._server is None:
            raise bad_request(f"`{where}.file_id`: no files are stored here.", self._param)
        if not self._reads:
            return "", ""
        files = self._server.batch_store.files
        file = await files.get(self._caller.key_id, file_id)
        self._left -= file.bytes
        if self._left < 0:
            raise bad_request(
                f"The files that `{self._param}` names have more than {self._max_bytes} bytes"
                " (--max-body-bytes).",
                self._param,
            )
        path = files.folder.content(file.id)
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            raise ApiError(404, f"The file {file_id!r} was deleted.", self._param) from None
        if is_pdf(content):
            return file.filename, await self._text_of_pdf(content, where)
        text = await asyncio.to_thread(plain_text, content, where, self._param)
        return file.filename, await asyncio.to_thread(self._fitting, text)

    def _fitting(self, text: str) -> str:
        """`text`, counted. Slow if it is long."""
        if self._rendering is not None:
            fits = self._rendering.least_tokens
            self._least_tokens = fits(text, self._param, self._least_tokens)
        return text


def _is_of(part: Any, kind: str) -> bool:
    return isinstance(part, dict) and cast(Mapping[str, Any], part).get("type") == kind


def _string(part: Any, field: str, where: str, param: str) -> str | None:
    value = cast(dict[str, Any], part).get(field) if isinstance(part, dict) else 0
    if value is not None and not isinstance(value, str):
        raise bad_request(f"`{where}.{field}` must be a string.", param)
    return value
