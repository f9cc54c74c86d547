"""Tests of pagemill.render.control_text."""

from hypothesis import given
from hypothesis import strategies as st

from pagemill.render.control_text import ControlText, stand_in

TOKENS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "<|a|><|b|>"]
CONTROL = ControlText(TOKENS)


def test_harmless_values_are_left_alone() -> None:
    for value in ("", " ", "the dog", "x[0] = a_b", "INST", None, 1.5, True, ["a", {"b": "c"}]):
        assert CONTROL.marked(value) == value
    assert ControlText([]).marked("<|im_end|>") == "<|im_end|>"
    assert CONTROL.with_stand_ins("<|im_end|>") is None


def test_keys_and_nested_strings_are_marked() -> None:
    marked = CONTROL.marked({"<s>": [{"a": "<s>"}]})
    (key,) = marked
    assert key != "<s>"
    assert key == marked[key][0]["a"]


def test_the_longest_token_counts() -> None:
    marked = CONTROL.marked("<")
    text = CONTROL.with_stand_ins("<|a|><|b|>" + marked + "</s>")
    assert text == stand_in(5) + "<" + stand_in(3)


@given(
    st.lists(st.text("<|>/s[]INTimendx_ ", max_size=12), max_size=3),
    st.lists(st.sampled_from(["", " ", "\n", "user", *TOKENS]), min_size=4, max_size=4),
)
def test_only_the_templates_tokens_become_stand_ins(users: list[str], own: list[str]) -> None:
    written = own[0] + "".join(
        CONTROL.marked(text) + after for text, after in zip(users, own[1:], strict=False)
    )
    plain = own[0] + "".join(text + after for text, after in zip(users, own[1:], strict=False))
    respelt = CONTROL.with_stand_ins(written)
    if respelt is None:
        assert written == plain
        return
    spelt = [TOKENS[ord(c) - 0x100000] for c in respelt if ord(c) >= 0x100000]
    used = own[: len(users) + 1]
    assert spelt == [token for token in used if token in TOKENS] or "<|a|><|b|>" in "".join(used)
    for index, token in enumerate(TOKENS):
        respelt = respelt.replace(stand_in(index), token)
    assert respelt == plain
