"""The text of a file: what a model that reads text can be given of it."""

from __future__ import annotations

from pagemill.render.errors import RenderError
from pagemill.render.media.data_url import data_of
from pagemill.server.errors import bad_request


def content_of_url(url: str, where: str, param: str) -> bytes:
    """The file that a data: URL holds.

    Raises:
        ApiError: 400 about `where` in the field `param`: it holds no base64.
    """
    try:
        return data_of(url, len(url))
    except RenderError as error:
        raise bad_request(f"`{where}`: {error}.", param) from error


def plain_text(content: bytes, where: str, param: str) -> str:
    """The text of a file of text.

    Raises:
        ApiError: 400 about `where` in the field `param`: it is no text.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise bad_request(
            f"`{where}` is no text in UTF-8, and only PDFs and files of text are read (text,"
            " Markdown, JSON, CSV and the like).",
            param,
        )
    return text
