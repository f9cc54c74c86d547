"""Values of --speculative-config."""

import pytest

from pagemill.config import (
    ConfigError,
    EngineConfig,
    HeadDrafts,
    ModelDrafts,
    NgramDrafts,
    SpeculationConfig,
    SuffixDrafts,
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


def test_suffixes() -> None:
    config = speculation('{"method": "suffix"}')
    assert config.suffix == SuffixDrafts(24, 24, 1.0, 0.1, 10_000)
    assert config.ngram is None and config.draft_head is None and config.max_tokens == 24
    config = speculation(
        '{"method": "suffix", "num_speculative_tokens": 6, "suffix_decoding_max_tree_depth": 8,'
        ' "suffix_decoding_max_spec_factor": 2, "suffix_decoding_min_token_prob": 0,'
        ' "suffix_decoding_max_cached_requests": 0}'
    )
    assert config.suffix == SuffixDrafts(6, 8, 2.0, 0.0, 0)
    assert speculation('{"method": "ngram"}').suffix is None


def test_heads() -> None:
    config = speculation('{"method": "mtp"}')
    assert config.draft_head == HeadDrafts(1, "mtp")
    assert config.ngram is None and config.draft_model is None and config.max_tokens == 1
    config = speculation('{"method": "eagle3", "model": "o/m", "revision": "v1"}')
    assert config.draft_head == HeadDrafts(3, "eagle3", "o/m", "v1")
    config = speculation('{"method": "eagle", "model": "a", "num_speculative_tokens": 5}')
    assert config.draft_head == HeadDrafts(5, "eagle", "a") and config.max_tokens == 5
    for method in ("medusa", "mlp_speculator"):
        config = speculation(f'{{"method": "{method}", "model": "a"}}')
        assert config.draft_head == HeadDrafts(3, method, "a") and config.max_tokens == 3
    assert speculation('{"method": "draft_model", "model": "a"}').draft_head is None


def test_drafts_from_masks() -> None:
    config = speculation('{"method": "dflash", "model": "a"}')
    assert config.draft_head == HeadDrafts(7, "dflash", "a", parallel=True) and config.parallel
    config = speculation('{"method": "eagle3", "model": "a", "parallel_drafting": true}')
    assert config.draft_head == HeadDrafts(3, "eagle3", "a", parallel=True) and config.parallel
    config = speculation('{"model": "a", "parallel_drafting": true}')
    assert config.draft_model == ModelDrafts(5, "a", parallel=True) and config.parallel
    assert not speculation('{"model": "a", "parallel_drafting": false}').parallel
    assert not speculation('{"method": "mtp"}').parallel


def test_drafts_of_one_pass_fit_in_a_step() -> None:
    drafts = {"method": "dflash", "model": "a"}
    tight = {"speculative_config": drafts, "max_num_batched_tokens": 8}
    assert build(EngineConfig, tight).speculation.max_tokens == 7
    with pytest.raises(ConfigError, match="steps of 7 tokens: set --max-num-batched-tokens 8"):
        build(EngineConfig, {**tight, "max_num_batched_tokens": 7})


@pytest.mark.parametrize(
    "method",
    [
        *("deepseek_mtp", "ernie_mtp", "exaone_moe_mtp", "glm4_moe_lite_mtp", "glm4_moe_mtp"),
        *("hy_v3_mtp", "longcat_flash_mtp", "mimo_mtp", "mimo_v2_mtp", "nemotron_h_mtp"),
        *("qwen3_5_mtp", "qwen3_next_mtp", "step3p5_mtp"),
    ],
)
def test_older_names_of_mtp(method: str) -> None:
    config = speculation(f'{{"method": "{method}", "num_speculative_tokens": 2}}')
    assert config.draft_head == HeadDrafts(2, "mtp")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"method": "dspark"}',
            "method is 'dspark'; it is one of 'ngram', 'suffix', 'draft_model', 'dflash'",
        ),
        ('{"method": "dflash"}', 'needs "model", a drafter that was made for the model'),
        (
            '{"method": "dflash", "model": "a", "parallel_drafting": false}',
            'method "dflash" always drafts in parallel',
        ),
        ('{"model": "a", "parallel_drafting": 1}', "parallel_drafting is 1; it is true or false"),
        (
            '{"method": "eagle", "model": "a", "parallel_drafting": true}',
            "method 'eagle' has no field 'parallel_drafting'",
        ),
        ('{"method": "eagle"}', 'needs "model", a head that was made for the model'),
        ('{"method": "mtp", "model": "a"}', "method 'mtp' has no field 'model'"),
        ('{"method": "draft_model"}', 'needs "model", a smaller model'),
        ('{"model": 3}', "model is 3; it is a text"),
        ('{"model": "a", "prompt_lookup_min": 2}', "has no field 'prompt_lookup_min'"),
        ('{"method": "ngram", "model": "a"}', "has no field 'model'"),
        ('{"num_speculative_tokens": 4}', "method is None"),
        ('{"method": ["ngram"]}', "method is .'ngram'.; it is one of 'ngram'"),
        (
            '{"method": "ngram", "num_speculative_token": 4}',
            "did you mean 'num_speculative_tokens'",
        ),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "is 0; it is a whole number from 1"),
        ('{"method": "ngram", "prompt_lookup_max": 17}', "from 1 to 16"),
        ('{"method": "ngram", "prompt_lookup_min": true}', "prompt_lookup_min is True"),
        (
            '{"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 4}',
            "prompt_lookup_min = 5 is more than prompt_lookup_max = 4",
        ),
        (
            '{"method": "suffix", "suffix_decoding_max_tree_depth": 2}',
            "is 2; it is a whole number from 3 to 64",
        ),
        (
            '{"method": "suffix", "suffix_decoding_min_token_prob": 1.5}',
            "is 1.5; it is a number from 0.0 to 1.0",
        ),
        ('{"method": "suffix", "suffix_decoding_max_spec_factor": "2"}', "is '2'; it is a number"),
        ("[1]", "not a JSON object"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="--speculative-config.*" + words):
        ngram(text)
