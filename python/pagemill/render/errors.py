"""Refusals of this package."""


class RenderError(ValueError):
    """Text, messages or a template that cannot be rendered; the message is one for the client.

    `param` is the request field at fault, if there is one.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
