"""How a model's matrices are quantized when it is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadQuantization:
    """`format` is a name of `pagemill.quantization.at_load.formats`; files lie in `folder`."""

    format: str
    folder: str
