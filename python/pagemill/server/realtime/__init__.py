"""Conversations over a WebSocket, in OpenAI's realtime events, restricted to text."""
