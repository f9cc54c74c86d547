"""Whose media a request has."""

from __future__ import annotations

from typing import NamedTuple


class MediaOwner(NamedTuple):
    """Names that a client gives media (`uuid`) are those of one API key, tenant and `cache_salt`;
    equal media are kept once for each `cache_salt`, as KV is."""

    key_id: str = ""
    tenant: str = ""
    cache_salt: str = ""
