"""A field that crosses boundaries is named only in its declaration and where it takes effect."""

import re

from pagemill import _native

from tests.source_tree import SourceFile, source_files

_NOT_CODE = re.compile(r"(^|/)(tests|testing|docs|bench)/|_(test|fuzzer|benchmark)\.|/abi/")
CODE = [
    file
    for file in source_files(".h", ".cc", ".in", ".py", ".pyi")
    if not _NOT_CODE.search(file.path)
]
# Ops have their own operands, which may have a field's name.
_OPS = ("cc/ops/", "cuda/ops/", "python/pagemill/ops/", "sycl/ops/")
# Files that carry statistics from the engine to its users. Others may count or read them.
_CARRIERS = ("cc/bindings/engine_bindings.cc", "cc/capi/", "python/pagemill/_native/")


def names(file: SourceFile, word: str) -> bool:
    """True if `word` is in the file as a whole word."""
    return re.search(rf"\b{re.escape(word)}\b", file.text) is not None


def test_a_sampling_field_is_in_the_struct_the_sampler_and_the_schema_of_requests() -> None:
    found = [file.path for file in CODE if names(file, "min_p")]
    assert [path for path in found if not path.startswith(_OPS)] == [
        "cc/sampling/sampler.cc",
        "cc/step/sampling_params.h",
        "python/pagemill/config/model.py",  # the help of --logprobs-mode
        "python/pagemill/config/sampling.py",
    ]


def test_a_metric_is_one_line() -> None:
    found = [file.path for file in CODE if names(file, "spec_decode_num_accepted_tokens")]
    assert found == [
        "cc/scheduler/scheduler_stats.h",
        "python/pagemill/observe/compatibility.py",  # a list of another system's names
    ]


def test_what_carries_statistics_names_none() -> None:
    carriers = [file for file in CODE if file.path.startswith(_CARRIERS)]
    assert len(carriers) > 5
    words_of_other_things = {"draining", "paused"}
    for name in {row[0] for row in _native.EngineStats.fields} - words_of_other_things:
        found = [file.path for file in carriers if names(file, name)]
        assert found == [], f"EngineStats::Visit() lists {name}, and these follow from it"
