"""Builds the program that an executor runs from a model on disk.

built = build(ModelSource.open(path), BuildOptions())
executor = _native.NativeExecutor(built.program_text, options)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.inputs.task import Pooled, Task
from pagemill.layers.stack import EXPERTS, RESULT
from pagemill.models.base import (
    LIMIT,
    Classifier,
    Config,
    MediaEncoder,
    MediaPart,
    MediaTraits,
    Model,
    ModelConfigError,
    ModelTraits,
    TiledModel,
    encoders_of,
)
from pagemill.models.draft_heads.base import MaskQueries
from pagemill.models.draft_heads.draft_states import DraftStates
from pagemill.models.table import find, model_class
from pagemill.ops.program import GroupEntry, Program, has_latents_alone
from pagemill.ops.program_text import to_text
from pagemill.ops.shard import Shard
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner.architecture import with_architecture
from pagemill.runner.config_sizes import check_sizes
from pagemill.runner.encoders_alone import EncodersAlone, encoder_tail, item_tokens
from pagemill.runner.fallback.module import BuiltModule
from pagemill.runner.linear_matrices import linear_matrices
from pagemill.runner.media_embeds import media_embeds_traits
from pagemill.runner.prompt_embeds import check_reads_embeds, embeds_traits, identity_program
from pagemill.runner.recorded_shapes import ShapeRecorder
from pagemill.runner.returned_values import return_alignment, return_values, routed_experts
from pagemill.runner.stages import Stage, part_of
from pagemill.runner.tail import OTHER_TAILS, Tail, choose_tail
from pagemill.runner.tracing import (
    adapter_slots,
    trace_encoder,
    trace_hidden,
    trace_model,
    trace_whole,
)
from pagemill.weights.adapter_target import AdapterTarget
from pagemill.weights.errors import MissingTensorError
from pagemill.weights.source import ModelSource
from pagemill.weights.stored_matrix import StoredMatrix


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """`max_model_len` tokens of prompt and output, None = the model's maximum; `task`, None = what
    the model's files are for; `pooling` of a text's vectors ("mean", "first", "last"), None = that
    of the files, makes an embedding model of any model; `normalize` to the length 1, unless the
    files say otherwise; `rewrite` applies the fusions of the native rewriter (needs the compiled
    extension); `shard` is the rank that the program is for, of those that divide each layer, and
    `stage` the range of layers that it has; `hidden_states` are layers, counted from 0, whose
    results [tokens, hidden size] each step returns as the outputs `hidden.<layer>`; `experts` are
    layers whose chosen experts [tokens, choices] it returns as `experts.<layer>`, with
    `routed_experts` all that choose some; with `adapters`, requests may have adapters of the linear
    layers; `implementation` is "native", "transformers", or "auto": native if there is native
    support, else by `transformers`; `draft_states` are what it returns for a head that drafts, as
    the output of that name; if it `keeps_context`, the KV of layers with windows stays as long as
    that of the others, as draft models need it; with `language_only` the model takes no media, and
    its encoders are not built; neither are those whose kinds are all in `refused_media`; with
    `prompt_embeds` it takes rows of embeddings in place of token ids, and no other media; with
    `media_embeds` media may be rows of embeddings, also if its encoders are not built; with
    `encoder_only` nothing else is built, for items of at most `max_model_len` tokens."""

    max_model_len: int | None = None
    task: Task | None = None
    pooling: str | None = None
    normalize: bool = True
    rewrite: bool = True
    shard: Shard = Shard()
    stage: Stage = Stage()
    hidden_states: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()
    routed_experts: bool = False
    adapters: bool = False
    implementation: str = "native"
    draft_states: DraftStates | None = None
    keeps_context: bool = False
    language_only: bool = False
    refused_media: frozenset[str] = frozenset()
    prompt_embeds: bool = False
    media_embeds: bool = False
    encoder_only: bool = False


@dataclass(frozen=True, slots=True)
class BuiltEncoder:
    """The program that computes embeddings of media items; `features` computes its input for
    an image or audio (`MediaEncoder.features`), which `layout` divides before, if it has tiles
    (`TiledModel.layout`). `features` None: items are texts, or rows of embeddings, which the
    program returns as they are."""

    program_text: str
    traits: MediaTraits
    features: Callable[[PreparedMedia], MediaFeatures] | None
    layout: Callable[[PreparedMedia], Sequence[MediaPart]] | None = None
    adapter_targets: tuple[AdapterTarget, ...] = ()
    """What adapters may change, of a program that has them."""


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A program and the properties that the engine needs to run it. `output_size` is the width of a
    step's output rows: the vocabulary, the embedding's dimension, or the number of classes;
    `pooled` says what the rows of a model that pools are."""

    program_text: str
    architecture: str
    vocab_size: int
    output_size: int
    max_model_len: int
    pooled: Pooled | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    kv_groups: tuple[GroupEntry, ...] = ()
    latent_kv: bool = False
    """Whether the cached keys and values are latents alone."""
    eos_token_ids: tuple[int, ...] = ()
    encoders: tuple[BuiltEncoder, ...] = ()
    """Of a model with media, or whose prompts may be embeddings: `MediaFeatures.encoder` counts
    them."""
    adapter_targets: tuple[AdapterTarget, ...] = ()
    """What adapters may change, of a program that has them."""
    unread: tuple[str, ...] = ()
    """Linear layers of its files that neither its program nor those of its encoders have."""
    routed_experts: tuple[int, int] | None = None
    """Layers whose chosen experts the program returns, and how many each chooses for a token."""
    alignment: tuple[int, int] | None = None
    """Heads whose queries and keys it gives for each token, and the numbers of each."""
    notes: tuple[str, ...] = ()
    """Notes for the operator on how the model was read and divided."""
    module: BuiltModule | None = None
    """What runs instead of a program, which is then empty."""
    draft_states_width: int = 0
    """Only for a draft head: the numbers of a state that it reads."""
    draft_heads: int = 0
    """Only for heads that give all drafts of a request in one pass: how many there are."""
    draft_masks: MaskQueries | None = None
    """Only for a drafter that gives all drafts of a request in one pass, from masks."""
    draft_media_width: int = 0
    """Only for a draft head of a model with media: the numbers of an embedding that it reads."""
    draft_grid_positions: bool = False
    """Only for a draft head: whether it reads positions of several dimensions."""
    draft_token_ids: tuple[int, ...] = ()
    """Of a draft head with a vocabulary of its own: the target's token of each column."""
    shard: Shard = Shard()
    """The rank that `program_text` is for, of those that divide each layer."""
    stage: Stage = Stage()
    """What `program_text` has of the model; all other fields are those of the whole."""
    sends: tuple[str, ...] = ()
    """The values that the program of the next stage reads."""

    @property
    def pooling(self) -> bool:
        """Whether it pools prompts instead of generating."""
        return self.pooled is not None

    @property
    def takes_media(self) -> bool:
        """Whether prompts may have media."""
        return self.encodes_media or self.takes_media_embeds

    @property
    def encodes_media(self) -> bool:
        """Whether it has encoders of images, audio or videos."""
        return any(encoder.features is not None for encoder in self.encoders)

    @property
    def takes_media_embeds(self) -> bool:
        """Whether media may be rows of embeddings: the last of `encoders` returns them."""
        return any(_takes_media_rows(encoder) for encoder in self.encoders)

    @property
    def embeds_width(self) -> int:
        """Of the rows of embeddings that prompts may be; 0: they are token ids."""
        if self.encoder_text is not None:
            return 0
        widths = (
            each.traits.width
            for each in self.encoders
            if each.features is None and not _takes_media_rows(each)
        )
        return next(widths, 0)

    @property
    def encoder_text(self) -> EncoderText | None:
        """What its encoder takes if that reads the text of a prompt."""
        return next((each.traits.text for each in self.encoders if each.traits.text), None)


def build(source: ModelSource, options: BuildOptions) -> BuiltModel:
    """Trace the model of `source` and rewrite its program.

    Raises:
        ModelConfigError: the architecture or one of its settings is not supported, nor by the
            fallback if `options` allow it; `max_model_len` exceeds the model's, or it lacks a layer
            of `hidden_states`.
        WeightsError: a weight is missing, unused or of the wrong shape, its quantization is not
            supported, or a size of the configuration is larger than every tensor.
    """
    if options.implementation == "transformers":
        return _build_by_library(source, options, None)
    if options.implementation == "auto" and (missing := _without_support(source)) is not None:
        return _build_by_library(source, options, missing)
    source = with_architecture(source)
    check_sizes(source)
    model = model_class(source.architecture).from_config(_limited(source, options))
    if isinstance(model, Classifier):
        source = source.with_prefix(model.base_prefix)
    if options.encoder_only:
        model, tail = EncodersAlone.of(model, source.architecture), encoder_tail()
        options = replace(options, max_model_len=_item_tokens(model, options))
    else:
        tail = choose_tail(
            source, model, task=options.task, pooling=options.pooling, normalize=options.normalize
        )
    traits = model.traits
    weights = trace_model(
        model,
        source,
        tail,
        options.shard,
        adapters=options.adapters,
        draft_states=options.draft_states,
        keeps_context=options.keeps_context,
        media=_media_traits(model, source, options, generates=tail.pooling is None),
    )
    return_values(weights.trace, "hidden_states", RESULT, "hidden", options.hidden_states)
    routed = routed_experts(weights.trace) if options.routed_experts else {}
    return_values(weights.trace, "experts", EXPERTS, EXPERTS, routed or options.experts)
    alignment = return_alignment(weights.trace, traits.alignment_heads)
    program = weights.trace.program
    if options.prompt_embeds:
        check_reads_embeds(program, source.architecture)
    encoders = _build_encoders(model, source, options, weights)
    weights.check_all_used({**model.ignored, **OTHER_TAILS})
    _check_divided(program, source.architecture, options.shard)
    part = part_of(program, options.stage)
    # A row is computed from the tokens of one step. So a prompt must run in one step, unless its
    # last token is all that counts and has seen the others in the KV cache; and a step that skips a
    # cached prefix could not pool over it. If tokens of a prompt attend to later ones, their KV is
    # of that prompt alone.
    pooled = tail.pooled(model, source)
    generates = pooled is None
    if routed and not generates:
        raise ModelConfigError(
            "a model that pools returns no experts: leave out --enable-return-routed-experts"
        )
    return BuiltModel(
        program_text=text_of(part.program, rewrite=options.rewrite),
        architecture=source.architecture,
        vocab_size=traits.vocab_size,
        output_size=traits.vocab_size if pooled is None else pooled.width,
        max_model_len=_max_model_len(traits, tail, options.max_model_len),
        pooled=pooled,
        chunked_prefill=traits.causal and (generates or tail.pooling == "last"),
        prefix_caching=traits.causal and generates,
        kv_groups=tuple(part.program.groups),
        latent_kv=has_latents_alone(part.program.caches),
        eos_token_ids=source.eos_token_ids,
        encoders=encoders,
        adapter_targets=tuple(weights.adapter_targets),
        unread=_unread(source, model, weights) if options.adapters else (),
        routed_experts=(len(routed), next(iter(routed.values()))) if routed else None,
        alignment=alignment,
        notes=tuple(weights.notes),
        shard=options.shard,
        stage=options.stage,
        sends=part.sends,
    )


def _unread(source: ModelSource, model: Model, weights: WeightBinder) -> tuple[str, ...]:
    """Layers whose weights are not read."""
    ignored = re.compile("|".join(model.ignored) or "(?!)")
    names = [tensor.name for tensor in source.tensors if tensor.name.endswith(".weight")]
    unread = [name for name in names if name in weights.claimed or ignored.fullmatch(name)]
    return tuple(name.removesuffix(".weight") for name in unread)


def _check_divided(program: Program, name: str, shard: Shard) -> None:
    if shard.ranks > 1 and not any("ranks" in dict(op.attributes) for op in program.ops):
        raise ModelConfigError(f"{name} is not divided among ranks; use --tensor-parallel-size 1")
    if shard.whole_experts and not any(op.op == "moe_route" for op in program.ops):
        raise ModelConfigError(f"{name} has no experts: leave out --enable-expert-parallel")


def supports(source: ModelSource) -> bool:
    """Whether the architecture of `source` has native support."""
    return _without_support(source) is None


def _without_support(source: ModelSource) -> ModelConfigError | None:
    """Why the architecture of `source` cannot run natively; None if it can."""
    try:
        find(with_architecture(source).architecture)
    except ModelConfigError as error:
        return error
    return None


def _build_by_library(
    source: ModelSource, options: BuildOptions, missing: ModelConfigError | None
) -> BuiltModel:
    """The model as `transformers` has it; `missing` is why it is not native."""
    reason = "" if missing is None else f"{missing}. "
    if source.tensors:  # otherwise weights are random
        check_sizes(source)
    try:
        from pagemill.runner.fallback.build import build_module
    except ImportError as error:
        raise ModelConfigError(
            f"{reason}The fallback to transformers, which is slower, needs torch and transformers:"
            f" pip install 'pagemill[transformers]' ({error})"
        ) from error
    try:
        return build_module(source, options)
    except ModelConfigError as error:
        raise ModelConfigError(f"{reason}{error}") from error


def text_of(program: Program, *, rewrite: bool = True) -> str:
    """The program's text, by default with the fusions of the native rewriter."""
    text = to_text(program)
    if not rewrite:
        return text
    from pagemill import _native

    return _native.rewrite_program(text)


def _is_wanted(media: MediaTraits, options: BuildOptions) -> bool:
    return not options.language_only and not media.is_refused(options.refused_media)


def _media_traits(
    model: Model, source: ModelSource, options: BuildOptions, *, generates: bool
) -> tuple[MediaTraits, ...]:
    """What the model's program takes in place of token ids.

    Raises:
        ModelConfigError: embeddings are wanted of a model that does not take them, or a model with
            an encoder that its decoder attends to is wanted without it, or with adapters, or to
            pool.
    """
    media = [encoder.traits for encoder in encoders_of(model)]
    for each in media:
        if each.encoder_decoder:
            _check_encoder_decoder(source.architecture, each, options)
            if not generates:
                raise ModelConfigError(
                    f"{source.architecture} generates, and does not pool: leave out --task"
                )
    wanted = tuple(each for each in media if _is_wanted(each, options))
    if options.media_embeds:
        return (*wanted, _rows_of_media(model, source, options))
    if not options.prompt_embeds:
        return wanted
    if wanted:
        raise ModelConfigError(
            f"{source.architecture} takes media: --enable-prompt-embeds needs"
            " --language-model-only, too"
        )
    return (embeds_traits(model, source.architecture),)


def _rows_of_media(model: Model, source: ModelSource, options: BuildOptions) -> MediaTraits:
    """The encoder of media that are rows of embeddings already."""
    if options.prompt_embeds:
        raise ModelConfigError(
            "--enable-prompt-embeds and --enable-mm-embeds exclude each other: leave one out"
        )
    refused = options.refused_media
    media = [each.traits for each in encoders_of(model) if not each.traits.is_refused(refused)]
    return media_embeds_traits(media, source.architecture)


def _item_tokens(model: EncodersAlone, options: BuildOptions) -> int:
    """Of the longest item that encoders alone are built for.

    Raises:
        ModelConfigError: the options are of a language model.
    """
    takes_rows = options.prompt_embeds or options.media_embeds
    if options.language_only or takes_rows or options.adapters or options.task:
        raise ModelConfigError(
            "--mm-encoder-only loads encoders without a language model: leave out --task,"
            " --language-model-only, --enable-prompt-embeds, --enable-mm-embeds and adapters"
        )
    longest = model.traits.max_model_len
    return min(longest, item_tokens(model, options.max_model_len or longest))


def _takes_media_rows(encoder: BuiltEncoder) -> bool:
    return encoder.features is None and bool(encoder.traits.placeholders)


def _check_encoder_decoder(name: str, media: MediaTraits, options: BuildOptions) -> None:
    if options.prompt_embeds:
        raise ModelConfigError(
            f"{name} takes no prompt embeddings: leave out --enable-prompt-embeds"
        )
    if not _is_wanted(media, options):
        kinds = " and ".join(media.placeholders)
        allow = f", and allow {kinds} in --limit-mm-per-prompt" if kinds else ""
        raise ModelConfigError(f"{name} needs its encoder: leave out --language-model-only{allow}")


def _build_encoders(
    model: Model,
    source: ModelSource,
    options: BuildOptions,
    weights: WeightBinder,
) -> tuple[BuiltEncoder, ...]:
    """The encoders of a model with media that are wanted; the tensors that the others read count as
    used in `weights`, too.

    Raises:
        MissingTensorError: one is wanted, and a tensor is missing.
    """
    built: list[BuiltEncoder] = []
    for traits, encoder in encoders_of(model):
        wanted = _is_wanted(traits, options)
        trace = Trace()
        slots = adapter_slots(trace) if options.adapters else None
        own = WeightBinder(trace, source, None, slots)  # undivided: one rank runs it
        try:
            trace_encoder(encoder, traits, own)
        except MissingTensorError as error:
            if wanted:
                hint = "; --language-model-only serves text without the encoder"
                hint = "" if traits.encoder_decoder else hint
                raise MissingTensorError(f"{error}{hint}") from error
        weights.claim_all(own)
        if wanted:
            text = text_of(own.trace.program, rewrite=options.rewrite)
            layout = encoder.layout if isinstance(encoder, TiledModel) else None
            features = encoder.features if isinstance(encoder, MediaEncoder) else None
            targets = tuple(own.adapter_targets)
            built.append(BuiltEncoder(text, traits, features, layout, targets))
    if options.prompt_embeds or options.media_embeds:
        if options.media_embeds:
            media = _rows_of_media(model, source, options)
        else:
            media = embeds_traits(model, source.architecture)
        text = text_of(identity_program(media), rewrite=options.rewrite)
        built.append(BuiltEncoder(text, media, None))
    return tuple(built)


def model_shapes(source: ModelSource, options: BuildOptions) -> dict[str, tuple[int, ...]]:
    """The tensors, by name, that `build` would read with these options; from the configuration
    alone.

    Raises:
        ModelConfigError: the architecture or one of its settings is not supported.
        WeightsError: the classes of the configuration are wrong.
    """
    source = with_architecture(source)
    model = model_class(source.architecture).from_config(_limited(source, options))
    tail = choose_tail(source, model, task=options.task, pooling=options.pooling)
    weights = ShapeRecorder()
    encoders = encoders_of(model)
    trace_whole(model, weights, tail, [encoder.traits for encoder in encoders])
    for traits, encoder in encoders:
        recorder = ShapeRecorder()
        trace_encoder(encoder, traits, recorder)
        weights.shapes |= recorder.shapes
    return weights.shapes


def matrices_to_quantize(
    source: ModelSource, *, only_experts: bool = False
) -> tuple[StoredMatrix, ...]:
    """The matrices of linear layers (`linear_matrices`) among the tensors of `source`, without
    those of any head, and those whose values become constants; with `only_experts`, those of
    experts alone.

    Raises:
        ModelConfigError, WeightsError: see `build`; the architecture has no native support.
    """
    named = with_architecture(source)
    check_sizes(named)
    model = model_class(named.architecture).from_config(named.config)
    if isinstance(model, Classifier):
        named = named.with_prefix(model.base_prefix)
    weights = WeightBinder(Trace(), named)
    trace_hidden(model, weights, [encoder.traits for encoder in encoders_of(model)])
    found = linear_matrices(weights.trace.program, source.tensors, only_experts=only_experts)
    values = weights.read_as_values
    return tuple(each for each in found if (each.tensor.file, each.tensor.offset) not in values)


def _limited(source: ModelSource, options: BuildOptions) -> Config:
    """The configuration, with the longest context that is served if it is not the model's."""
    if options.max_model_len is None:
        return source.config
    return {**source.config, LIMIT: options.max_model_len}


def _max_model_len(traits: ModelTraits, tail: Tail, wanted: int | None) -> int:
    longest = traits.max_model_len
    if wanted is not None:
        if not 1 <= wanted <= longest:
            raise ModelConfigError(
                f"--max-model-len {wanted} is outside the model's range, 1 to {longest}"
            )
        return wanted
    stated = tail.max_seq_length
    return longest if stated is None else min(longest, stated)
