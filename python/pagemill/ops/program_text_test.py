"""Program text reads back as it was written, and invalid text is rejected with its line."""

import pytest

from pagemill import ops
from pagemill.ops.program import Format, GroupEntry
from pagemill.ops.program_text import ProgramTextError, from_text, to_text
from pagemill.ops.trace import Parts, Trace


def _trace() -> Trace:
    trace = Trace()
    ids = trace.input("token_ids", "i32", ("tokens",))
    rows = trace.input("logits_rows", "i32", ("logits_rows",))
    file = trace.file("/models/a name with spaces.gguf")
    table = trace.weight("embed", "q8_0", (50, 64), file=file, offset=96)
    norm = trace.constant("norm", "f32", (64,), bytes(range(256)))
    bias = trace.constant("bias", "f32", (2,), b"\x00\x00\x80\x3f" * 2)
    assert bias.shape == (2,)
    x = ops.embedding(ids, table, scale=0.1)
    q = ops.linear(x, trace.weight("q", "f16", (64, 64), file=file, offset=4096), row_shape=(2, 32))
    values = trace.weight("p.values", "i32", (64, 8), file=file, offset=20480)
    scales = trace.weight("p.scales", "f16", (2, 64), file=file, offset=22528)
    parts = Parts(values, scales)
    trace.quantized("p", "u4", (8, 64), Format("awq", (1, 32), at=(8, 0)), parts)
    trace.quantized("h", "u4", (4, 8, 64), Format("awq", (1, 32), row_step=16), parts)
    values = trace.weight("s.values", "i8", (6, 64), file=file, offset=26624)
    scales = trace.weight("s.scales", "f32", (6, 1), file=file, offset=27008)
    form = Format("scaled", (1, 64), quantized_activations=True)
    scaled = trace.quantized("s", "i8", (6, 64), form, Parts(values, scales))
    stacked = trace.stack("t", [scaled, scaled])
    assert stacked.shape == (2, 6, 64) and stacked.format == form
    values = trace.weight("f.values", "i32", (6, 8), file=file, offset=27136)
    scales = trace.weight("f.scales", "f8_e4m3", (6, 4), file=file, offset=27328)
    factor = trace.weight("f.factor", "f32", (1,), file=file, offset=27392)
    parts = Parts(values, scales, factor=factor)
    floats = trace.quantized("f", "u4", (6, 64), Format("nvfp4", (1, 16)), parts)
    trace.stack("g", [floats, floats])
    experts = [
        trace.weight(f"e{i}", "bf16", (4, 64), file=file, offset=24576 + 512 * i) for i in range(3)
    ]
    trace.stack("e", experts)
    cache = trace.cache("kv0", trace.kv_group(window=7), (2, 32))
    trace.cache(
        "state0",
        trace.group(GroupEntry("states", "state_space")),
        (3, 4),
        layout="state",
        dtype="f32",
    )
    ops.kv_write(q, q, cache)
    y = ops.rms_norm(ops.paged_attention(q, cache, scale=1 / 3), _vector(trace, 32), eps=1e-6)
    x = ops.rms_norm(ops.linear(y, table_like(trace, file)), norm, eps=1e-5, weight_offset=1.0)
    trace.output("logits", ops.linear(ops.select_rows(x, rows), table, dtype="f32"))
    return trace


def _vector(trace: Trace, length: int):
    return trace.constant("head_norm", "f32", (length,), bytes(4 * length))


def table_like(trace: Trace, file: int):
    return trace.weight("o", "bf16", (64, 64), file=file, offset=12288)


def test_round_trip():
    program = _trace().program
    program.check_integrity()
    text = to_text(program)
    assert from_text(text) == program
    assert to_text(from_text(text)) == text


def test_text_is_what_the_format_says():
    lines = to_text(_trace().program).split("\n")
    assert lines[0] == "pagemill-program 3"
    assert "file 0 /models/a name with spaces.gguf" in lines
    assert "file 1 @" in lines
    assert "weight embed q8_0 50,64 0 96" in lines
    assert "weight bias f32 2 1 256" in lines  # constants start at multiples of 64 bytes
    assert "quantized p u4 8,64 awq 1,32 p.values,p.scales,-,- at=8,0" in lines
    assert "quantized h u4 4,8,64 awq 1,32 p.values,p.scales,-,- row_step=16" in lines
    scaled = "scaled 1,64 {0}.values,{0}.scales,-,- quantized_activations=1"
    assert f"quantized s i8 6,64 {scaled.format('s')}" in lines
    assert "stack t.values i8 2,6,64 s.values,s.values" in lines
    assert f"quantized t i8 2,6,64 {scaled.format('t')}" in lines
    assert "quantized f u4 6,64 nvfp4 1,16 f.values,f.scales,-,-,f.factor" in lines
    assert "quantized g u4 2,6,64 nvfp4 1,16 g.values,g.scales,-,-,g.factor" in lines
    assert "stack e bf16 3,4,64 e0,e1,e2" in lines
    assert "group sliding_7 sliding_window window=7" in lines
    assert "group states state_space" in lines
    assert "cache kv0 sliding_7 kv kv 2,32" in lines
    assert "cache state0 states state f32 3,4" in lines
    assert "input token_ids i32 tokens" in lines
    assert "value v1 act tokens,2,32" in lines
    assert "op embedding token_ids,embed -> v0 scale=0.1" in lines
    assert "op kv_write v1,v1,kv0 ->" in lines
    assert f"op paged_attention v1,kv0 -> v2 scale={1 / 3!r} window=7 causal=1" in lines
    assert "op rms_norm v4,norm -> v5 eps=1e-05 weight_offset=1" in lines
    assert "value v7 f32 logits_rows,50" in lines
    assert "output logits v7" in lines
    constants = lines.index(f"constants {(256 + 64) + 128}")
    assert bytes.fromhex(lines[constants + 1])[:256] == bytes(range(256))


def test_comments_and_missing_operands():
    text = to_text(_trace().program)
    commented = text.replace("cache kv0", "# what follows is a cache\ncache kv0")
    assert from_text(commented) == from_text(text)
    with_dash = text.replace("op linear v0,q ->", "op linear v0,q,- ->")
    assert from_text(with_dash).ops[1].inputs == ("v0", "q", None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pagemill-program 3", "pagemill-program 1", "line 1"),
        ("input token_ids i32 tokens", "input token_ids i33 tokens", "unknown dtype 'i33'"),
        ("input token_ids i32 tokens", "input token_ids i32 Q", "line [123][0-9]"),
        ("input token_ids", "imput token_ids", "unknown word 'imput'"),
        ("cache kv0 sliding_7 kv kv 2,32", "cache kv0 sliding_7 kv kv", "wrong field count"),
        ("cache kv0 sliding_7", "cache kv0 sliding_8", "of group 'sliding_8', undeclared"),
        ("window=7", "width=7", "expected window=<tokens>"),
        ("state_space", "state_space 1 2", "wrong field count"),
        (",- at=8,0", ",- to=8,0", "expected at=, row_step= or quantized_activations=1"),
        ("p.scales,-,-", "p.scales,-", "expected values,scales,zeros,groups"),
        ("p.scales,-,-", "kv0,-,-", "'p' is made of 'kv0', undeclared"),
        ("cache kv0", "cache norm", "'norm' is declared twice"),
        ("op embedding token_ids,", "op embedding v3,", "reads 'v3' before it is written"),
        ("o -> v4", "o -> v2", "writes 'v2': undeclared or written"),
        ("output logits v7", "output logits v70", "never written"),
        ("eps=1e-05", "eps", "not name=value"),
        ("weight embed q8_0 50,64 0", "weight embed q8_0 50,64 9", "undeclared"),
        ("constants 448", "constants 449", "448 bytes of constants, 449 announced"),
        ("file 1 @", "file 2 @", "out of order"),
    ],
)
def test_bad_text_is_refused(old: str, new: str, message: str):
    text = to_text(_trace().program)
    assert old in text
    with pytest.raises(ProgramTextError, match=message):
        from_text(text.replace(old, new))


def test_a_transposed_matrix_has_a_column_stride():
    trace = Trace()
    trace.weight("t", "f32", (3, 2), file=trace.file("f"), offset=8, row_stride=4, column_stride=12)
    text = to_text(trace.program)
    assert "weight t f32 3,2 0 8 4 12\n" in text
    assert from_text(text).weights[0].column_stride == 12


def test_columns_of_a_wider_matrix_have_a_row_stride():
    trace = Trace()
    trace.weight("part", "q8_0", (3, 32), file=trace.file("f"), offset=34, row_stride=102)
    text = to_text(trace.program)
    assert "weight part q8_0 3,32 0 34 102" in text.split("\n")
    assert from_text(text).weights[0].row_stride == 102
