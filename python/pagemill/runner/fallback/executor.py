"""Runs a module of `transformers` over paged KV caches; needs torch and transformers.

    executor = ModuleExecutor(built.module, ModuleOptions(num_blocks=64))
    logits = executor(batch)["logits"]

It takes the same batches as the native executor (`cc/bindings/batch_arrays.h`) and serves the
engine as the callable of `_native.PythonExecutor`. The tokens of all requests are one row to the
module; its positions tell them apart, and its attention reads each request's own pages.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pagemill._torch_interop import as_array, as_tensor
from pagemill.inputs.task import Task
from pagemill.layers.pooler import KINDS
from pagemill.ops.table import reference
from pagemill.ops.torch_step import TorchCache, TorchStep, make_step
from pagemill.runner.fallback import pieces
from pagemill.runner.fallback.attention import (
    NAME,
    CurrentStep,
    PagedAttention,
    attach,
    register,
)
from pagemill.runner.fallback.library import LibraryModel
from pagemill.runner.fallback.module import BuiltModule, LayerSpec, Place

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

Batch = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModuleOptions:
    """`dtype` is the type of weights and activations, `kv_cache_dtype` that of the KV cache, each
    "f32", "bf16" or "f16"; `num_blocks` pages of `block_size` tokens, the null page included."""

    dtype: str = "f32"
    kv_cache_dtype: str = "f32"
    num_blocks: int = 64
    block_size: int = 16


class ModuleExecutor:
    """One module with its weights and caches. One step at a time.

    Raises (on construction):
        ModelConfigError: texts cannot run in pieces (`pieces`).
        WeightsError: the weights are not those of the module.
        OSError: a weight file cannot be read.
    """

    def __init__(self, module: BuiltModule, options: ModuleOptions) -> None:
        register()
        self._module = module
        self._options = options
        task = Task.GENERATE if module.pooling is None else Task.EMBED
        library = LibraryModel.find(module.config, task)
        dtype = _DTYPES[options.dtype]
        if module.path is None:
            self._model = library.random(NAME, dtype)
        else:
            self._model = library.load(module.path, NAME, dtype)
        self._rows = "logits_to_keep" in inspect.signature(self._model.forward).parameters
        self._current = CurrentStep()
        self._check()
        self.arena = self._attach(options.num_blocks)

    @property
    def table_block_sizes(self) -> list[int]:
        """Tokens per block in each block table of a batch."""
        return [self._options.block_size * times for times in self._module.layout.times]

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> dict[str, npt.NDArray[np.float32]]:
        """Run one step: the int32 arrays of a batch by name.

        Returns "logits" [logits rows, vocabulary], or "pooled" [requests or tokens, width].
        """
        step = make_step(batch, self._model.device)
        self._current.step = step
        arguments: dict[str, Any] = {
            "input_ids": as_tensor(batch["token_ids"])[None],
            "position_ids": step.inputs["positions"][None] + self._module.position_offset,
            "use_cache": False,
            "return_dict": True,
        }
        if self._module.pooling is not None:
            hidden = self._model(**arguments)[0][0]
            return {"pooled": as_array(self._pool(hidden, step))}
        rows = as_tensor(batch["logits_rows"])
        if self._rows:
            logits = self._model(**arguments, logits_to_keep=rows)[0][0]
        else:
            logits = self._model(**arguments)[0][0, rows]
        return {"logits": as_array(logits.float().contiguous())}

    def _pool(self, hidden: torch.Tensor, step: TorchStep) -> torch.Tensor:
        kind = KINDS[self._module.pooling or "all"]
        attributes = {"kind": float(kind), "normalize": float(self._module.normalize)}
        (rows,) = reference("pool")([hidden], attributes, step)
        return rows.contiguous()

    def _check(self) -> None:
        tables = len(self._module.layout.windows)
        self._attach(pieces.BLOCKS * max(1, tables))

        def run(batch: Batch) -> npt.NDArray[np.float32]:
            (rows,) = self(batch).values()
            # Those of all tokens: the last of each request.
            return (
                rows if len(rows) < batch["query_start"][-1] else rows[batch["query_start"][1:] - 1]
            )

        pieces.check_pieces(
            run,
            self.table_block_sizes,
            self._module.vocab_size,
            causal=self._module.causal,
            dtype=self._options.dtype,
        )

    def _attach(self, num_blocks: int) -> torch.Tensor:
        """Gives each attention layer its cache: a part of the rows of an arena of `num_blocks`
        pages, which it returns, [pages, elements]."""
        layout = self._module.layout
        page_elements = self._options.block_size * layout.row_elements
        dtype = _DTYPES[self._options.kv_cache_dtype]
        arena = torch.zeros(num_blocks if layout.windows else 0, page_elements, dtype=dtype)
        rows = [arena.view(-1, layout.row_elements // times) for times in layout.times]
        for index, layer in enumerate(self._module.layers):
            cache = _cache(rows, layer, layout.places[index]) if layout.places else None
            attention = PagedAttention(layer, cache, self._current)
            attach(self._model.get_submodule(layer.name), attention)
        return arena


def _cache(tables: Sequence[torch.Tensor], layer: LayerSpec, place: Place) -> TorchCache:
    rows = tables[place.table][:, place.offset : place.offset + layer.row_elements]
    both = rows.view(len(rows), 2, layer.kv_heads, layer.row_elements // layer.kv_heads // 2)
    return TorchCache(both[:, 0], both[:, 1], place.table)
