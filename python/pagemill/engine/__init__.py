"""From token ids to token ids: the native engine seen from asyncio and from plain Python."""
