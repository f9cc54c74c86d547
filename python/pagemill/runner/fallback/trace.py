"""The dry run of a module of `transformers`: its attention layers, or why it cannot run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from transformers import AttentionMaskInterface, PreTrainedModel

from pagemill.models.base import ModelConfigError
from pagemill.runner.fallback.attention import attach, register
from pagemill.runner.fallback.module import LayerSpec

NAME = "pagemill_trace"
"""In the registry; masks are made, as descriptions of which token sees which."""
_TOKENS = 4
_CAUSAL, _ALL, _OTHER = 0, -1, -2  # descriptions of masks; a positive one is a window
# Options of the library's attention that change nothing here: training, and other back ends.
_WITHOUT_EFFECT = frozenset(
    {
        "dropout",
        "is_causal",
        "position_ids",
        "cache_position",
        "use_cache",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "deterministic",
        "target_dtype",
    }
)
_UNDERSTOOD = frozenset({"scaling", "softcap", "s_aux", "sliding_window"})


@dataclass(slots=True)
class Traced:
    """`layers` in the order in which they run; `causal` is None if there are none."""

    layers: list[LayerSpec] = field(default_factory=list[LayerSpec])
    causal: bool | None = None
    output_size: int = 0


def trace(model: PreTrainedModel, span: int) -> Traced:
    """Runs `model`, which was made on torch's device "meta" with the attention NAME, on a few
    tokens. `span` is the longest context it is to serve.

    Raises:
        ModelConfigError: the module does something that does not fit Pagemill's cache.
    """
    name = type(model).__name__
    kind: Any = type(model)
    if not kind._supports_attention_backend:
        raise _refusal(name, "its attention is its own and cannot be replaced")
    if kind._is_stateful:
        raise _refusal(name, "it keeps states between tokens, not only keys and values")
    if model.config.is_encoder_decoder:
        raise _refusal(name, "it attends to the tokens of an encoder")
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise _refusal(name, "it takes no positions, so that texts cannot run in pieces")
    traced = Traced()
    _attach_recorders(model, name, traced)
    register(NAME)
    AttentionMaskInterface.register(NAME, functools.partial(_describe, span))
    ids = torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta")
    try:
        with torch.inference_mode():
            output = model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                position_ids=ids,
                use_cache=False,
                return_dict=True,
            )
    except ModelConfigError:
        raise
    except Exception as error:  # whatever the library's code raises is about this model
        raise _refusal(name, f"its dry run failed: {error!s:.300}") from error
    if not traced.layers:
        raise _refusal(name, "none of its layers attends through the library's interface")
    traced.output_size = int(output[0].shape[-1])
    return traced


def _attach_recorders(model: torch.nn.Module, name: str, traced: Traced) -> None:
    named = cast("Iterator[tuple[str, torch.nn.Module]]", model.named_modules())
    for path, module in named:
        attach(module, _Recorder(name, path, module, traced))


def _refusal(name: str, reason: str) -> ModelConfigError:
    return ModelConfigError(f"{name} cannot run by the fallback to transformers: {reason}")


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Adds its layer to `traced` when the layer attends."""

    model: str
    path: str
    module: torch.nn.Module
    traced: Traced

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, options: dict[str, Any]
    ) -> torch.Tensor:
        if any(layer.name == self.path for layer in self.traced.layers):
            raise self._refusal("attends more than once in a step")
        if k.shape[2] != _TOKENS or q.shape[2] != _TOKENS or q.shape[1] % k.shape[1]:
            raise self._refusal("does not attend to the step's tokens, each to all before it")
        unknown = sorted(
            key
            for key, value in options.items()
            if key not in _UNDERSTOOD | _WITHOUT_EFFECT and value is not None and value is not False
        )
        if unknown:
            raise self._refusal(f"has options that are not supported: {', '.join(unknown)}")
        visible = self._visible(mask, options)
        causal = visible != _ALL
        if self.traced.causal not in (None, causal):
            raise self._refusal("sees later tokens and other layers do not, or the reverse")
        self.traced.causal = causal
        scores = bool(options.get("softcap")) or options.get("s_aux") is not None
        if scores and not causal:
            raise self._refusal("has a soft cap or sinks and sees later tokens")
        self.traced.layers.append(
            LayerSpec(
                name=self.path,
                heads=q.shape[1],
                kv_heads=k.shape[1],
                head_dim=k.shape[3],
                value_dim=v.shape[3],
                window=max(0, visible),
                scores=scores,
            )
        )
        return q.new_empty(1, _TOKENS, q.shape[1], v.shape[3])

    def _visible(self, mask: Any, options: dict[str, Any]) -> int:
        """A description, by the mask that the module makes, or the layer's options if it makes
        none."""
        if mask is None:
            causal = options.get("is_causal")
            if not (getattr(self.module, "is_causal", True) if causal is None else causal):
                return _ALL
            return int(options.get("sliding_window") or _CAUSAL)
        if not isinstance(mask, torch.Tensor) or mask.device.type == "meta" or mask.numel() != 1:
            raise self._refusal("adds biases to scores, or has a mask of its own")
        visible = int(mask)
        if visible == _OTHER:
            raise self._refusal(
                "has a mask that is neither causal nor a sliding window, such as one of chunks"
            )
        return visible

    def _refusal(self, reason: str) -> ModelConfigError:
        return _refusal(self.model, f"{self.path} {reason}")


def _describe(span: int, *, mask_function: Callable[..., Any], **options: Any) -> torch.Tensor:
    """In place of a mask, a number that says what `mask_function` lets a query see in a context of
    `span` tokens. The signature is the library's."""
    del options
    return torch.full((1, 1, 1, 1), visibility(mask_function, span))


def visibility(mask_function: Callable[..., Any], span: int) -> int:
    """The window of a mask in a context of `span` tokens; 0 if it is causal without a window, -1 if
    all tokens see all, -2 if it is neither."""
    keys, zero = torch.arange(span), torch.tensor(0)
    seen: dict[int, torch.Tensor] = {}
    try:
        for query in sorted({span - 1, span // 2, span // 3}):
            visible = torch.as_tensor(mask_function(zero, zero, torch.tensor(query), keys))
            seen[query] = visible.broadcast_to(keys.shape).to(torch.bool)
    except (RuntimeError, IndexError, NotImplementedError):  # it depends on more than positions
        return _OTHER
    if span > 1 and all(bool(visible.all()) for visible in seen.values()):
        return _ALL
    window = int(seen[span - 1].sum())
    for query, visible in seen.items():
        if not torch.equal(visible, (keys <= query) & (keys > query - window)):
            return _OTHER
    return _CAUSAL if window >= span else window
