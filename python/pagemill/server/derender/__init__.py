"""Answers of chats and completions, from the tokens that another server generated for them."""
