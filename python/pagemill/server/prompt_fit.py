"""Prompts as the engine gets them: truncated if the client asks for it, and checked."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.engine.async_engine import Prompt
from pagemill.engine.limits import (
    check_prompt,
    each_checked,
    encoder_prompt,
    longest_context,
    resolve_max_tokens,
)
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.model_info import ModelInfo


def fit_prompts(
    model: ModelInfo, prompts: Sequence[RenderedPrompt], options: GenerationOptions
) -> list[Prompt]:
    """The prompts, and how many tokens may follow each.

    Raises:
        EngineError: one is empty, too long, or has an unknown token.
    """
    return each_checked(prompts, options.param, lambda prompt: _fit_prompt(model, prompt, options))


def fit_pooled(
    model: ModelInfo, prompts: Sequence[RenderedPrompt], options: GenerationOptions
) -> list[Prompt]:
    """The prompts, of which a model that pools reads all.

    Raises:
        EngineError: as `fit_prompts`.
    """
    return each_checked(prompts, options.param, lambda prompt: _fit_pooled(model, prompt, options))


def _fit_prompt(model: ModelInfo, prompt: RenderedPrompt, options: GenerationOptions) -> Prompt:
    longest = max(1, model.max_model_len - (options.max_tokens or 1))
    text = model.encoder_text
    if text is None:
        prompt = _truncated(model, prompt, options, longest)
    elif not prompt.media:
        prompt = _truncated(model, prompt, options, min(longest, text.most_tokens))
        prompt = encoder_prompt(text, prompt, options.decoder, options.param)
    room = resolve_max_tokens(
        len(prompt),
        options.max_tokens,
        options.default_max_tokens,
        longest_context(prompt, model.max_model_len, text),
        options.param,
        options.max_tokens_param,
    )
    if model.max_tokens_cap is not None:
        room = min(room, model.max_tokens_cap)
    check_prompt(prompt, model.vocab_size, options.param)
    return Prompt(prompt, room)


def _fit_pooled(model: ModelInfo, prompt: RenderedPrompt, options: GenerationOptions) -> Prompt:
    prompt = _truncated(model, prompt, options, model.max_model_len)
    if len(prompt) > model.max_model_len:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"This model's maximum context length is {model.max_model_len} tokens, but"
            f" `{options.param}` has {len(prompt)}. Shorten it, or send"
            " `truncate_prompt_tokens: -1`.",
            options.param,
        )
    check_prompt(prompt, model.vocab_size, options.param)
    return Prompt(prompt)


def kept_tokens(model: ModelInfo, options: GenerationOptions, longest: int) -> int | None:
    """The number of tokens to which `truncate_prompt_tokens` cuts prompts, `longest` if it is -1;
    None: it does not.

    Raises:
        EngineError: it is no such number.
    """
    limit = options.truncate_prompt_tokens
    if limit is None:
        return None
    if limit == 0 or limit > model.max_model_len:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`truncate_prompt_tokens` is {limit}; it must be from 1 to the context length,"
            f" {model.max_model_len}, or -1 for as many tokens as fit.",
            "truncate_prompt_tokens",
        )
    return longest if limit == -1 else limit


def _truncated(
    model: ModelInfo, prompt: RenderedPrompt, options: GenerationOptions, longest: int
) -> RenderedPrompt:
    kept = kept_tokens(model, options, longest)
    if kept is None or len(prompt) <= kept:
        return prompt
    if prompt.media:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`{options.param}` has {len(prompt)} tokens, and a prompt with media or"
            f" embeddings is not truncated to {kept}: send fewer of them.",
            "truncate_prompt_tokens",
        )
    right = options.truncation_side == "right"
    return RenderedPrompt(prompt.token_ids[:kept] if right else prompt.token_ids[-kept:])
