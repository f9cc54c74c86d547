"""Conversations and transcriptions over a WebSocket, in OpenAI's realtime events; answers are
text."""
