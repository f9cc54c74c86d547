"""PDF files of requests: a few are read at once, each in a process of its own, which ends when its
request does.

budget = PdfBudget(tenant)
text = await pdf_files.text(content, budget, "messages[0].content[0].file", "messages")
"""

from __future__ import annotations

import os

from pagemill.render.errors import RenderError
from pagemill.render.pdf.pages import read_pages
from pagemill.render.stop import Stop
from pagemill.server.errors import bad_request
from pagemill.server.shared_places import SharedPlaces
from pagemill.server.threads import Threads

MAX_WAITING = 32
"""PDF files that are read or wait for it; each is in memory."""
MAX_SECONDS = 60.0
"""Of processor time, for all PDF files of a request together."""
_PROCESSES = min(4, os.cpu_count() or 1)


class PdfBudget:
    """What is left of the processor time that one request has for its PDF files, in seconds, and
    the tenant whose share of the readers it uses."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.left_s = MAX_SECONDS


class PdfFiles:
    """Those of all requests of a server. Belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = Threads(_PROCESSES, "pdf")
        self._places = SharedPlaces(
            MAX_WAITING, "Too many requests wait for their PDF files; try again."
        )

    async def text(self, content: bytes, budget: PdfBudget, where: str, param: str) -> str:
        """The text of all pages; `budget` has less afterwards. Cancelling it ends the process.

        Raises:
            ApiError: 400 about `where` in the field `param`: it cannot be read, or not within the
                limits; 429: too many wait.
        """
        if budget.left_s <= 0:
            raise bad_request(
                f"The PDF files of `{param}` take more than {MAX_SECONDS:g} s of processor time to"
                " read; send fewer of their pages.",
                param,
            )
        stop = Stop()
        async with self._places.place(budget.tenant):
            try:
                found = await self._threads.run_with(
                    stop, budget.tenant, read_pages, content, budget.left_s, stop
                )
            except RenderError as error:
                raise bad_request(f"`{where}`: {error}.", param) from error
        budget.left_s -= found.cpu_s
        return found.text
