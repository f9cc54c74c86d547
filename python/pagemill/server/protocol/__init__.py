"""Bodies of requests and responses, as msgspec structs.

msgspec and not pydantic: encoding an event is about twenty times cheaper, which is what a token
costs, and its errors carry the path of the field. FastAPI's own body parsing is not used.
"""
