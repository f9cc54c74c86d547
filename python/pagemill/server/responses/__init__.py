"""The Responses API over chats: items to messages, events of a message to items, and a store."""
