"""The draft model of a configuration: opened, built, and compared with the model it drafts for."""

from __future__ import annotations

from pagemill.config import ConfigError, EngineConfig
from pagemill.config.env import cache_folder
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.fetch import resolve
from pagemill.weights.source import ModelSource
from pagemill.weights.vocabulary import first_difference, vocabulary


def build_draft(source: ModelSource, built: BuiltModel, config: EngineConfig) -> BuiltModel | None:
    """The program of the draft model that the configuration names; None if it names none.

    Args:
        source: the model that it drafts for.
        built: the program of that.
        config: everything about the engine.

    Raises:
        ConfigError: the two do not fit together, or the engine's executor runs one program only.
        FetchError, WeightsError, ModelConfigError: the model cannot be found, read or built.
    """
    drafts = config.speculation.draft_model
    if drafts is None:
        return None
    name = f"--speculative-config: the draft model {drafts.model}"
    if config.executor.executor != "native" or built.module is not None:
        raise ConfigError(f"{name} needs a natively supported model and --executor native")
    path = resolve(
        drafts.model,
        cache_dir=cache_folder(config.model.cache_dir),
        revision=drafts.revision,
    )
    draft_source = ModelSource.open(path)
    draft = build(draft_source, BuildOptions())
    if draft.pooling or built.pooling:
        which = "it" if draft.pooling else "the model"
        raise ConfigError(f"{name} cannot be used: {which} makes embeddings and generates no text")
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
