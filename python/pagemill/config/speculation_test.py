"""Values of --speculative-config."""

import pytest

from pagemill.config import (
    ConfigError,
    EngineConfig,
    ModelDrafts,
    NgramDrafts,
    SpeculationConfig,
    build,
)


def speculation(text: str) -> SpeculationConfig:
    return build(EngineConfig, {"speculative-config": text}).speculation


def ngram(text: str) -> NgramDrafts | None:
    return speculation(text).ngram


def test_fields_and_their_defaults() -> None:
    assert EngineConfig().speculation.ngram is None
    assert ngram("{}") is None
    assert ngram('{"method": "ngram"}') == NgramDrafts(8, 3, 8)
    text = (
        '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2,'
        ' "prompt_lookup_max": 4}'
    )
    assert ngram(text) == NgramDrafts(5, 2, 4)
    # Setting only one of the two adjusts the default of the other.
    assert ngram('{"method": "ngram", "prompt_lookup_max": 2}') == NgramDrafts(8, 2, 2)
    assert ngram('{"method": "ngram", "prompt_lookup_min": 9}') == NgramDrafts(8, 9, 9)


def test_a_draft_model() -> None:
    config = speculation('{"method": "draft_model", "model": "a.gguf"}')
    assert config.draft_model == ModelDrafts(5, "a.gguf")
    assert config.ngram is None and config.max_tokens == 5
    # A model implies the method.
    config = speculation('{"model": "o/m", "num_speculative_tokens": 3, "revision": "v1"}')
    assert config.draft_model == ModelDrafts(3, "o/m", "v1")
    assert speculation("{}").max_tokens == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"method": "eagle"}', "method is 'eagle'; it must be 'ngram' or 'draft_model'"),
        ('{"method": "draft_model"}', 'needs "model", a smaller model'),
        ('{"model": 3}', "model is 3; it is a text"),
        ('{"model": "a", "prompt_lookup_min": 2}', "has no field 'prompt_lookup_min'"),
        ('{"method": "ngram", "model": "a"}', "has no field 'model'"),
        ('{"num_speculative_tokens": 4}', "method is None"),
        (
            '{"method": "ngram", "num_speculative_token": 4}',
            "did you mean 'num-speculative-tokens'",
        ),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "is 0; it is a whole number from 1"),
        ('{"method": "ngram", "prompt_lookup_max": 17}', "from 1 to 16"),
        ('{"method": "ngram", "prompt_lookup_min": true}', "prompt_lookup_min is True"),
        (
            '{"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 4}',
            "prompt_lookup_min = 5 is more than prompt_lookup_max = 4",
        ),
        ("[1]", "not a JSON object"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="--speculative-config.*" + words):
        ngram(text)
