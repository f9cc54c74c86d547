"""The OpenAI-compatible HTTP server. The contract is docs/http.md."""
