"""What a `ToolLoop` says beside the events of generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.server.tools.call import ApprovedCall, Outcome
from pagemill.server.tools.offer import Offer, OfferedTool
from pagemill.server.tools.tool import ToolError


@dataclass(frozen=True, slots=True)
class ListingBegun:
    """The tools of a server are being listed."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class Listed:
    """Listing `index` is over: there are tools, or an error."""

    index: int
    offer: Offer
    tools: Sequence[OfferedTool]
    error: ToolError | None = None


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call begins that the client has approved."""

    call: ApprovedCall


@dataclass(frozen=True, slots=True)
class CallReturned:
    """Call `index` of the server's tools is over. They are numbered as they begin: with the
    `CallStart` of one, or with a `CallBegun`."""

    index: int
    outcome: Outcome


ToolEvent = ListingBegun | Listed | CallBegun | CallReturned
