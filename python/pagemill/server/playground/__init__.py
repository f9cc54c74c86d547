"""The playground: a page for chats, and the layer that serves it."""
