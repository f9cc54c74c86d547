"""The text of a file: what a model that reads text can be given of it."""

from __future__ import annotations

from pagemill.render.errors import RenderError
from pagemill.render.media.data_url import data_of
from pagemill.server.errors import bad_request


def text_of_base64(data: str, name: str | None, where: str, param: str) -> str:
    """`text_of_url` for a file in base64."""
    return text_of_url(f"data:;base64,{data}", name, where, param)


def named_text(content: bytes, name: str | None, where: str, param: str) -> str:
    """The text of a file, below its name.

    Raises:
        ApiError: 400 about `where` in the field `param`: it is no text.
    """
    if content.startswith(b"%PDF-"):
        raise bad_request(
            f"`{where}` is a PDF, and only files of text are read: send its text, or images of its"
            " pages to a model that takes images.",
            param,
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise bad_request(
            f"`{where}` is no text in UTF-8, and only files of text are read (text, Markdown, JSON,"
            " CSV and the like).",
            param,
        )
    return f"{name}\n{text}" if name else text


def text_of_url(url: str, name: str | None, where: str, param: str) -> str:
    """The text of the file that a data: URL holds, below its name.

    Raises:
        ApiError: 400 about `where` in the field `param`: it holds no base64, or no text.
    """
    try:
        content = data_of(url, len(url))
    except RenderError as error:
        raise bad_request(f"`{where}`: {error}.", param) from error
    return named_text(content, name, where, param)
