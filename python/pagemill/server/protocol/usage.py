"""Token counts of a response."""

from __future__ import annotations

import msgspec


class PromptTokensDetails(msgspec.Struct):
    """How much of the prompts came from the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """`usage`; completion tokens include the one that stopped a choice."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
