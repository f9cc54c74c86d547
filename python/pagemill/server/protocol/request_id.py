"""The field `request_id`, which every request of the API has."""

from __future__ import annotations

import re
from typing import Any

from pagemill.server.errors import bad_request

NAME = re.compile(rb"[\x21-\x7e]{1,128}")
"""What can be the value of a header, and stands in a log without quotes."""


def named(fields: dict[str, Any], request_id: str) -> tuple[dict[str, Any], str]:
    """`fields` with a `request_id`, their own or else the one given; and that id.

    Raises:
        ApiError: 400 for a field that cannot be the value of a header.
    """
    own = fields.get("request_id")
    if own is None or own == "":
        return {**fields, "request_id": request_id}, request_id
    if not isinstance(own, str):
        return fields, request_id  # to be refused for its type
    if not NAME.fullmatch(own.encode()):
        raise bad_request(
            "`request_id` must have 1 to 128 printable ASCII characters without spaces.",
            "request_id",
        )
    return fields, own
