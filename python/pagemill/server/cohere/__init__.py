"""Cohere's chats: requests as those of `/v1/chat/completions`, and how answers are written."""
