"""PDF files of requests: a few are read at once, each in a process of its own.

budget = PdfBudget()
text = await pdf_files.text(content, budget, "messages[0].content[0].file", "messages")
"""

from __future__ import annotations

import os

from pagemill.render.errors import RenderError
from pagemill.render.pdf.pages import read_pages
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.threads import Threads

MAX_WAITING = 32
"""PDF files that are read or wait for it; each is in memory."""
MAX_SECONDS = 60.0
"""Of processor time, for all PDF files of a request together."""
_PROCESSES = min(4, os.cpu_count() or 1)


class PdfBudget:
    """What is left of the processor time that one request has for its PDF files, in seconds."""

    def __init__(self) -> None:
        self.left_s = MAX_SECONDS


class PdfFiles:
    """Those of all requests of a server. Belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = Threads(_PROCESSES, "pdf")
        self._num_waiting = 0

    async def text(self, content: bytes, budget: PdfBudget, where: str, param: str) -> str:
        """The text of all pages; `budget` has less afterwards.

        Raises:
            ApiError: 400 about `where` in the field `param`: it cannot be read, or not within the
                limits; 429: too many wait.
        """
        if self._num_waiting >= MAX_WAITING:
            raise ApiError(429, "Too many requests wait for their PDF files; try again.")
        if budget.left_s <= 0:
            raise bad_request(
                f"The PDF files of `{param}` take more than {MAX_SECONDS:g} s of processor time to"
                " read; send fewer of their pages.",
                param,
            )
        self._num_waiting += 1
        try:
            found = await self._threads.run(read_pages, content, budget.left_s)
        except RenderError as error:
            raise bad_request(f"`{where}`: {error}.", param) from error
        finally:
            self._num_waiting -= 1
        budget.left_s -= found.cpu_s
        return found.text
