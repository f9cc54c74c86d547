"""Builds a model of `transformers` by a dry run without weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import PretrainedConfig, PreTrainedModel

from pagemill.inputs.task import Pooled, Task
from pagemill.layers.pooler import KINDS
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, BuiltModel
from pagemill.runner.fallback import trace
from pagemill.runner.fallback.attention import register
from pagemill.runner.fallback.library import LibraryModel
from pagemill.runner.fallback.module import BuiltModule, PageLayout
from pagemill.weights.pooling import matryoshka_sizes

if TYPE_CHECKING:
    from pagemill.weights.source import ModelSource

_NOTE = (
    "%s is run by the fallback to transformers %s, which is several times slower than native"
    " support; `pagemill models` lists what is supported natively"
)


def build_module(source: ModelSource, options: BuildOptions) -> BuiltModel:
    """The model of `source` as `transformers` has it.

    Raises:
        ModelConfigError: the library does not have it, or it does something that does not fit
            Pagemill's KV cache; or an option needs a program.
    """
    _check_options(source, options)
    task = options.task
    if task is None and (source.pooling is not None or options.pooling is not None):
        task = Task.EMBED
    library = LibraryModel.find(source.config, task)
    longest = _max_model_len(library.text_config, options.max_model_len)
    register(trace.NAME)
    model = library.without_weights(trace.NAME)
    offset = _position_offset(model)
    if options.max_model_len is None:
        longest -= offset
    traced = trace.trace(model, longest)
    causal = bool(traced.causal)
    pooled = _pooled(source, options, library, causal=causal, width=traced.output_size)
    layout = PageLayout.of(traced.layers) if causal else PageLayout(0, (), (), ())
    name, vocab_size = type(model).__name__, library.text_config.vocab_size
    module = BuiltModule(
        config=source.config,
        path=source.path if source.tensors else None,
        layers=tuple(traced.layers),
        layout=layout,
        causal=causal,
        pooling=None if pooled is None else pooled.pooling,
        normalize=pooled is not None and pooled.normalizes,
        position_offset=offset,
        num_parameters=model.num_parameters(),
        widest=_widest(model),
        output_size=traced.output_size,
        vocab_size=vocab_size,
    )
    return BuiltModel(
        program_text="",
        architecture=name,
        vocab_size=vocab_size,
        output_size=traced.output_size,
        max_model_len=longest,
        pooled=pooled,
        chunked_prefill=pooled is None or (causal and pooled.pooling == "last"),
        prefix_caching=pooled is None,
        eos_token_ids=source.eos_token_ids,
        notes=(_NOTE % (name, _version()),),
        module=module,
    )


def _version() -> str:
    import transformers

    return transformers.__version__


def _check_options(source: ModelSource, options: BuildOptions) -> None:
    refused = {
        "GGUF files need native support": source.kind != "hf",
        "--tensor-parallel-size must be 1": options.shard.ranks > 1,
        "--pipeline-parallel-size must be 1": options.stage.count > 1,
        "it has no adapters": options.adapters,
        "it has no encoders of media": options.encoder_only,
        "its prompts are token ids": options.prompt_embeds or options.media_embeds,
        "it returns no hidden states and experts": bool(options.hidden_states or options.experts),
    }
    for reason, holds in refused.items():
        if holds:
            raise ModelConfigError(f"{source.architecture} runs by the fallback only: {reason}")


def _max_model_len(config: PretrainedConfig, wanted: int | None) -> int:
    longest: Any = getattr(config, "max_position_embeddings", None)
    if not isinstance(longest, int) or longest < 1:
        if wanted is None:
            raise ModelConfigError(
                "the configuration has no max_position_embeddings: set --max-model-len"
            )
        return wanted
    if wanted is not None and not 1 <= wanted <= longest:
        raise ModelConfigError(
            f"--max-model-len {wanted} is outside the model's range, 1 to {longest}"
        )
    return wanted or longest


def _position_offset(model: PreTrainedModel) -> int:
    """What embeddings that count positions from behind the padding token add to them."""
    embeddings: Any
    for embeddings in model.modules():
        if hasattr(embeddings, "create_position_ids_from_input_ids"):
            return int(embeddings.padding_idx) + 1
    return 0


def _pooled(
    source: ModelSource, options: BuildOptions, library: LibraryModel, *, causal: bool, width: int
) -> Pooled | None:
    if library.task is Task.GENERATE:
        if not causal:
            raise ModelConfigError(
                f"{source.architecture} sees later tokens, so it generates no text; use --task"
                " embed"
            )
        return None
    kind, normalize = options.pooling, options.normalize
    if source.pooling is not None and source.pooling.dense:
        raise ModelConfigError(
            f"{source.path / 'modules.json'}: Dense modules need native support of the model"
        )
    if library.task.by_token:
        kind = "all"
    elif kind is None and source.pooling is not None:
        kind, normalize = source.pooling.kind, source.pooling.normalize
    kind = kind or ("last" if causal else "mean")
    known = KINDS.keys() - {"splade"}  # which needs a head that the library's encoders lack
    if kind not in known:
        raise ModelConfigError(f"no pooling {kind!r:.40}; known: {', '.join(sorted(known))}")
    sizes = matryoshka_sizes(source.config)
    return Pooled(task=library.task, width=width, pooling=kind, normalizes=normalize, sizes=sizes)


def _widest(model: PreTrainedModel) -> int:
    """Inputs and outputs of the widest linear layer, and what flows around it."""
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    hidden = int(model.config.get_text_config(decoder=True).hidden_size)
    head = cast("object", model.get_output_embeddings())
    widths = [m.in_features + 2 * m.out_features for m in linear if m is not head]
    return 4 * hidden + max(widths, default=4 * hidden)
