"""Symbolic tensors for tests of ops. Test code only."""

from pagemill.ops.program import Format, GroupEntry
from pagemill.ops.trace import Cache, Parts, Tensor, Trace


class Values:
    """Symbolic tensors of one trace."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.cache = self.trace.cache("kv", self.trace.kv_group(), (2, 16))
        self.latents = self.trace.cache("latents", self.trace.kv_group(), (40,), layout="latent")

    def act(self, *shape: int | str) -> Tensor:
        name = f"x{len(self.trace.program.inputs)}"
        return self.trace.input(name, "act", shape)

    def state(self, *dims: int) -> Cache:
        group = self.trace.group(GroupEntry("states", "state_space"))
        return self.trace.cache("state", group, dims, layout="state", dtype="f32")

    def f32(self, *shape: int | str) -> Tensor:
        name = f"x{len(self.trace.program.inputs)}"
        return self.trace.input(name, "f32", shape)

    def i32(self, *shape: int | str) -> Tensor:
        name = f"x{len(self.trace.program.inputs)}"
        return self.trace.input(name, "i32", shape)

    def weight(self, dtype: str, *shape: int) -> Tensor:
        name = f"w{len(self.trace.program.weights)}"
        return self.trace.weight(name, dtype, shape, file=self.trace.file("f"), offset=0)

    def scaled(self, dtype: str, shape: tuple[int, int], block: tuple[int, int]) -> Tensor:
        grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
        parts = Parts(self.weight(dtype, *shape), self.weight("f32", *grid))
        name = f"w{len(self.trace.program.weights)}"
        return self.trace.quantized(name, dtype, shape, Format("scaled", block), parts)
