"""The draft model of a configuration, or the head that reads the model's hidden states: opened,
built, and compared with the model it drafts for."""

from __future__ import annotations

from dataclasses import replace

from pagemill.config import ConfigError, EngineConfig, HeadFiles
from pagemill.config.env import cache_folder
from pagemill.engine.model_source import as_stored
from pagemill.models.draft_heads.base import PARALLEL_KEYS, MaskQueries, mask_token
from pagemill.models.draft_heads.draft_states import DraftStates
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.fetch import resolve
from pagemill.weights.source import ModelSource
from pagemill.weights.vocabulary import first_difference, vocabulary


def open_head(config: EngineConfig) -> HeadFiles | None:
    """The head that the configuration names, fetched if need be; None if it names none.

    Raises:
        FetchError: it cannot be found.
    """
    drafts = config.speculation.draft_head
    if drafts is None:
        return None
    if drafts.model is None:
        return HeadFiles(drafts.method)
    folder = cache_folder(config.model.cache_dir)
    path = resolve(drafts.model, cache_dir=folder, revision=drafts.revision, urls=True)
    return HeadFiles(drafts.method, str(path), drafts.parallel)


def states_for(head: HeadFiles | None) -> DraftStates | None:
    """What the model's program returns for its head, if it has one.

    Raises:
        WeightsError, ModelConfigError: the head cannot be read.
    """
    if head is None:
        return None
    from pagemill.runner.draft_head import head_states

    return head_states(head.method, head.path)


def build_draft(
    source: ModelSource,
    built: BuiltModel,
    config: EngineConfig,
    head: HeadFiles | None = None,
    *,
    values: bool = True,
) -> BuiltModel | None:
    """The program of the draft model or head that the configuration names; None if it names none.

    Args:
        source: the model that it drafts for.
        built: the program of that, with the states that the head reads.
        config: everything about the engine.
        head: that of the configuration, if it names one.
        values: if false, a draft model whose matrices are converted has zeros: it is never run.

    Raises:
        ConfigError: the two do not fit together, or the engine's executor runs one program only.
        FetchError, WeightsError, ModelConfigError: the model cannot be found, read or built.
    """
    if head is not None:
        return _build_head(source, built, config, head)
    drafts = config.speculation.draft_model
    if drafts is None:
        return None
    name = f"--speculative-config: the draft model {drafts.model}"
    if config.executor.executor != "native" or built.module is not None:
        raise ConfigError(f"{name} needs a natively supported model and --executor native")
    folder = cache_folder(config.model.cache_dir)
    path = resolve(drafts.model, cache_dir=folder, revision=drafts.revision, urls=True)
    draft_source = as_stored(ModelSource.open(path), folder, values=values).source
    draft = build(draft_source, BuildOptions(language_only=True, keeps_context=True))
    if drafts.parallel:
        token = mask_token(draft_source, draft_source.config, PARALLEL_KEYS, draft.vocab_size)
        draft = replace(draft, draft_masks=MaskQueries(token))
    if draft.pooling or built.pooling:
        which = "it" if draft.pooling else "the model"
        raise ConfigError(f"{name} cannot be used: {which} makes embeddings and generates no text")
    if not draft.chunked_prefill:
        raise ConfigError(
            f"{name} cannot be used: the tokens of its prompts see each other, so that it reads a"
            " text in one step; use a model whose tokens see those in front of them"
        )
    if draft.max_model_len < built.max_model_len:
        raise ConfigError(
            f"{name} knows texts of {draft.max_model_len} tokens, the model of"
            f" {built.max_model_len}: set --max-model-len {draft.max_model_len} or less"
        )
    own, drafted = vocabulary(source), vocabulary(draft_source)
    if bool(own) != bool(drafted) or (not own and built.vocab_size != draft.vocab_size):
        raise ConfigError(
            f"{name} may not have the tokens of the model: one of the two has no tokenizer, or"
            f" their vocabularies differ ({draft.vocab_size} and {built.vocab_size} tokens);"
            " use a model of the same family"
        )
    different = first_difference(own, drafted)
    if different is not None:
        raise ConfigError(
            f"{name} has another tokenizer than the model: token {different} is"
            f" {drafted[different]!r}, not {own[different]!r}; use a model of the same family"
        )
    return draft


def _build_head(
    source: ModelSource, built: BuiltModel, config: EngineConfig, head: HeadFiles
) -> BuiltModel:
    name = f"--speculative-config: the method {head.method}"
    if config.executor.executor != "native" or built.module is not None:
        raise ConfigError(f"{name} needs a natively supported model and --executor native")
    if built.pooling:
        raise ConfigError(f"{name} cannot be used: the model generates no text")
    from pagemill.runner.draft_head import build_head
    from pagemill.runner.joint_heads import JOINT_METHODS, build_joint_heads

    num_drafts = config.speculation.max_tokens
    if head.method not in JOINT_METHODS:
        return build_head(
            head.method, head.path, source, built, parallel=head.parallel, num_drafts=num_drafts
        )
    assert head.path is not None
    return build_joint_heads(head.method, head.path, source, built, num_drafts=num_drafts)
