"""What a Triton kernel is compiled for: types, alignment, and constants.

Each module of a kernel has SPECIALIZATIONS, by name. The C++ launcher of the op chooses one by its
name, and passes the arguments of `signature` in its order.
"""

from __future__ import annotations

from dataclasses import dataclass

LETTERS = {"i32": "i", "i64": "l", "fp32": "f"}
"""Types of arguments that are not pointers, as cuda/triton/image.h names them."""

ALIGNMENT = 16
"""What `:16` says of an argument: the number, or the address in bytes, is divisible by it."""


@dataclass(frozen=True, slots=True)
class Specialization:
    """One compilation of a kernel.

    `signature` has the type of every argument that is not a constant, in order: `*bf16` for a
    pointer, `i64` for a number, with `:16` behind it if it is a multiple of 16. `constants` are the
    kernel's constexpr parameters; `BLOCK`, the elements of one program, is among them.
    """

    signature: dict[str, str]
    constants: dict[str, int]
    warps: int

    @property
    def types(self) -> dict[str, str]:
        """Types without alignment."""
        return {name: kind.split(":")[0] for name, kind in self.signature.items()}

    @property
    def aligned(self) -> set[str]:
        """Arguments that are multiples of ALIGNMENT."""
        return {name for name, kind in self.signature.items() if kind.endswith(f":{ALIGNMENT}")}

    @property
    def parameters(self) -> str:
        """A letter for each argument: p for a pointer, and those of LETTERS."""
        return "".join(
            "p" if kind.startswith("*") else LETTERS[kind] for kind in self.types.values()
        )


ACTIVATIONS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}
"""Types of activations: their names in Pagemill, and in Triton."""
