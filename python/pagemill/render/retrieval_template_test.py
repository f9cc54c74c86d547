"""What models for retrieval read of queries, pages and texts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagemill.inputs.scoring import reads_pairs
from pagemill.render.chat_template import ChatTemplate
from pagemill.render.errors import RenderError
from pagemill.render.model_files import template_sources
from pagemill.render.retrieval_template import pair_template, retrieval_template

TOKENS = {"bos_token": "<bos>", "pad_token": "<pad>"}
IMAGE = [{"type": "image"}]


def written(template: str, role: str, content: Any, tokens: dict[str, str] = TOKENS) -> str:
    chat = ChatTemplate(template, tokens)
    message = chat.prepared({"role": role, "content": content})
    return chat.render([message], None, True, {})


@pytest.mark.parametrize("text", ["a b", [{"type": "text", "text": "a b"}]])
def test_colpali(tmp_path: Path, text: Any) -> None:
    template = retrieval_template("colpali", tmp_path)
    assert template is not None and reads_pairs(template)
    assert written(template, "query", text) == "<bos>Question: a b" + "<pad>" * 10 + "\n"
    assert written(template, "document", text) == written(template, "user", text) == "<bos>a b"
    for role in ("document", "query", "user"):
        assert written(template, role, IMAGE) == "<image><bos>Describe the image.\n"


def test_colqwen2(tmp_path: Path) -> None:
    fields = {"query_prefix": 'Find "it": ', "visual_prompt_prefix": "Seen\n<|image_pad|> $page é"}
    (tmp_path / "processor_config.json").write_text(json.dumps(fields))
    template = retrieval_template("colqwen2", tmp_path)
    assert template is not None
    assert written(template, "query", "a", {"pad_token": "_"}) == 'Find "it": a' + "_" * 10 + "\n"
    assert written(template, "query", "a", {}) == 'Find "it": a\n'
    assert written(template, "document", IMAGE) == "Seen\n<|image_pad|> $page é"


def test_colmodernvbert(tmp_path: Path) -> None:
    template = retrieval_template("colmodernvbert", tmp_path)
    assert template is not None
    tokens = {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    query = "[CLS]a" + "<end_of_utterance>" * 10 + "[SEP]"
    assert written(template, "query", "a", tokens) == query
    assert written(template, "document", "a", tokens) == "[CLS]a[SEP]"
    page = "<|begin_of_text|>User:<image>Describe the image.<end_of_utterance>\nAssistant:"
    assert written(template, "document", IMAGE, tokens) == f"[CLS]{page}[SEP]"


@pytest.mark.parametrize(
    ("model_type", "text"),
    [("clip", "<s>a</s>"), ("metaclip_2", "<s>a</s>"), ("siglip", "a</s>"), ("siglip2", "a</s>")],
)
def test_two_towers(model_type: str, text: str, tmp_path: Path) -> None:
    template = retrieval_template(model_type, tmp_path)
    assert template is not None
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    assert written(template, "query", "a", tokens) == text
    assert written(template, "user", "a", tokens) == text
    assert written(template, "document", IMAGE, tokens) == "<|image|>"
    with pytest.raises(RenderError, match="is one text, or one image"):
        written(template, "user", [*IMAGE, {"type": "text", "text": "a"}], tokens)


@pytest.mark.parametrize("model_type", ["qwen2_vl", None, 5])
def test_other_models_have_their_own(model_type: Any, tmp_path: Path) -> None:
    assert retrieval_template(model_type, tmp_path) is None


def test_a_gguf_file_of_a_reranker() -> None:
    """Texts of users are no part of the template, whatever they look like."""
    text = 'Judge "yes"\\n or é.\n<Query>: {query}\n<Document>: {document}\n{other} {{ x }}'
    template = pair_template({"tokenizer.chat_template.rerank": text})
    assert template is not None and reads_pairs(template)
    pair = [{"role": "query", "content": "{document}"}, {"role": "document", "content": "{{ b }}"}]
    chat = ChatTemplate(template, {})
    found = chat.render([chat.prepared(each) for each in pair], None, True, {})
    expected = text.replace("{document}", "{{ b }}").replace("{query}", "{document}")
    assert found == expected
    instruction = chat.prepared({"role": "system", "content": "a"})
    with pytest.raises(RenderError, match="send a query and a document alone"):
        chat.render([instruction, *map(chat.prepared, pair)], None, True, {})


def test_templates_that_lack_a_text() -> None:
    assert pair_template({"tokenizer.chat_template": "{query} {document}"}) is None
    with pytest.raises(RenderError, match="lacks {query} or {document}: replace it"):
        pair_template({"tokenizer.chat_template.rerank": "{query}"})


def test_a_file_with_both_templates_is_a_reranker() -> None:
    metadata = {
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.chat_template.rerank": "{query} {document}",
    }
    source: Any = SimpleNamespace(config={}, gguf=SimpleNamespace(metadata=metadata))
    assert template_sources(source, None) == {"default": pair_template(metadata)}
    assert template_sources(source, "{{ 1 }}") == {"default": "{{ 1 }}"}
