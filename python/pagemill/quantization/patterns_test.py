"""Patterns match what `re` matches, in bounded time; unsupported syntax is rejected."""

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.pattern_syntax import PatternError
from pagemill.quantization.patterns import Patterns

_MODULES = [
    f"model.layers.{layer}.{name}_proj"
    for layer in range(60)
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.up", "mlp.down")
]


def _matches(pattern: str, text: str) -> bool:
    return Patterns([pattern]).first(text) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        ".*lm_head",
        r"model\.layers\.[01]\..*",
        ".*(gate|up|down)_proj$",
        "^model.layers.(?:1|2)[0-9]",
        r".*\.\d+\.mlp\.[^.]*$",
        r"model\.layers\.\d{2}\.self_attn.[qk]_proj",
        ".*layers.[13579]{1,}.self",
        r"[\w.]+?down",
        ".*self_attn.(q|k)*_proj",
        "",
        "$",
        ".*^model",
        "(|model).layers",
        "mode{l}",
        "mode{}l",
        "m{,}odel{,}.",
        "mode{1}l",
        "model{,2}.layers",
        "[]m]odel",
        "[a-m.-]odel",
        r"\S+\D$",
        "(((.)*)*)*proj",
    ],
)
def test_names_that_a_configuration_lists(pattern: str) -> None:
    texts = [*_MODULES[::7], "lm_head", "model", ""]
    assert [_matches(pattern, text) for text in texts] == [
        re.match(pattern, text) is not None for text in texts
    ]


_ATOMS = st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", "^", "$", ""])
_TREES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(
            inner.map("({})".format), st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{,2}?"])
        ).map("".join),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    patterns=st.lists(_TREES, min_size=1, max_size=3),
    texts=st.lists(st.text("ab.", max_size=7), min_size=1, max_size=5),
)
def test_the_first_match_is_that_of_re(patterns: list[str], texts: list[str]) -> None:
    automaton = Patterns(patterns)  # states computed for one text are reused for the next
    for text in texts:
        matches = [i for i, pattern in enumerate(patterns) if re.match(pattern, text)]
        assert automaton.first(text) == (matches[0] if matches else None)


@pytest.mark.parametrize(
    ("pattern", "supported"),
    [
        ("(", "balanced parentheses"),
        ("a)", "balanced parentheses"),
        ("[ab", "complete patterns"),
        ("a\\", "complete patterns"),
        ("(?=a)", "groups without look-around, names and flags"),
        ("(?i)a", "groups without look-around"),
        (r"(a)\1", r"the escapes \\d"),
        (r"\ba", r"the escapes \\d"),
        ("*a", "repetitions of something"),
        ("a**", "one repetition after another"),
        ("a*+", "one repetition after another"),
        ("^*", "repetitions of characters and groups"),
        ("a{3,2}", "bounds ascend"),
        ("a{1001}", "up to 1000 repetitions"),
        ("[b-a]", "ranges of ASCII"),
        ("[a-\uffff]", "ranges of ASCII"),
        (r"[\D]", "classes without"),
        ("(" * 30 + ")" * 30, "groups in at most 20 others"),
        ("a" * 1001, "at most 1000 characters"),
        ("((a{99}){99}){99}", "patterns of 16384 states together"),
        ("(((){999}){999}){999}", "patterns of 16384 states together"),
        ("(((a{0}){999}){999}){999}", "patterns of 16384 states together"),
    ],
)
def test_what_is_not_supported(pattern: str, supported: str) -> None:
    with pytest.raises(PatternError, match=supported):
        Patterns([pattern])


def _hostile(generator: random.Random) -> list[str]:
    """Patterns that keep many states alive, a different set of them after each text."""
    pieces = ["(.*a)?", "[a-z]*", "(.?){99}", "(a|.)*", "[^q]{9,99}", "(.*(o|l)){9}", ".*", "(.*)*"]
    return ["".join(generator.choices(pieces, k=20)) + "!" for _ in range(40)]


@pytest.mark.parametrize("seed", range(4))
def test_hostile_patterns_take_bounded_time(seed: int) -> None:
    generator = random.Random(seed)
    begin = time.process_time()
    try:
        names = ModuleNames([f"re:{pattern}" for pattern in _hostile(generator)])
        assert not any(module in names for module in _MODULES)
    except PatternError as error:
        assert "states together" in str(error) or "too long" in str(error)
    # The bound on work is some 0.2 seconds. Python's `re` takes days for one of these names.
    assert time.process_time() - begin < 5


def test_the_first_of_names_and_patterns() -> None:
    names = ModuleNames(
        ["re:.*lm_head", "vision", r"re:model\.layers\.[01]\..*", "mlp.up", "vision"]
    )
    assert names.first("lm_head") == 0 and names.first("a.vision.b") == 1
    assert names.first("model.layers.1.mlp.up") == 2 and names.first("layers.7.mlp.up.x") == 3
    assert "model.layers.2.mlp.up_proj" not in names and "visions" not in names
    assert names.first("vision.lm_head") == 0


def test_many_names_are_found_as_fast_as_few() -> None:
    names = ModuleNames([f"model.layers.{i}.mlp.gate" for i in range(300_000)])
    begin = time.process_time()
    assert "model.layers.7.mlp.gate" in names
    assert not any(module in names for module in _MODULES)
    assert time.process_time() - begin < 0.5
