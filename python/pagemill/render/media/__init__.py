"""Images of messages: fetched, decoded, and as arrays that a model's encoder takes."""
