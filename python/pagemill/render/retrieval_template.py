"""How models for retrieval of images read queries and images, as a chat template for pairs: their
processors write both, and they have no template.

    template = retrieval_template(config["model_type"], folder)
    # {"role": "query", "content": "What is paging?"} -> "Query: What is paging?<pad>...\\n"

`processor_config.json` may have other texts, `query_prefix` and `visual_prompt_prefix`.

GGUF files of rerankers that answer "yes" or "no" have the template of a pair under the name
`rerank`: a text in which `{query}` and `{document}` stand for the two (llama.cpp's
`conversion/qwen.py`). `pair_template` makes a chat template of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from pagemill.render.errors import RenderError
from pagemill.render.special_tokens import read_json

_TEMPLATE = Template("""\
{%- for message in messages -%}
{%- set content = message['content'] -%}
{%- if content is string -%}{%- set content = [{'type': 'text', 'text': content}] -%}{%- endif -%}
{%- if $single and (messages|length > 1 or content|length > 1) -%}
{{ raise_exception('a prompt of this model is one text, or one image') }}
{%- endif -%}
{%- for part in content -%}
{%- if part['type'] == 'image' -%}{{ $page }}
{%- elif message['role'] == 'query' -%}{{ $query }}
{%- elif message['role'] in ['document', 'user'] -%}{{ $document }}
{%- endif -%}
{%- endfor -%}
{%- endfor -%}
""")


TOWER_IMAGE = "<|image|>"
"""The token that stands for an image in prompts of CLIP and SigLIP."""


class _Processor(NamedTuple):
    """What a processor writes, as expressions of Jinja: for a query and for a document, whose text
    is `part.text`, and for an image. `$stated` in the first and the last is the text that its file
    states, by default `query_prefix` and `page_prompt`. `single`: no prompt has two of these."""

    query_prefix: str
    page_prompt: str
    query: str
    document: str
    page: str
    single: bool = False


_CLIP = _Processor(
    "",
    TOWER_IMAGE,
    "bos_token ~ part.text ~ eos_token",
    "bos_token ~ part.text ~ eos_token",
    "$stated",
    single=True,
)
# Tokens that pad a text are those of its tokenizer.
_SIGLIP = _CLIP._replace(query="part.text ~ eos_token", document="part.text ~ eos_token")
# Behind a query are 10 tokens, whose vectors are compared, too.
_PROCESSORS: Mapping[str, _Processor] = {
    "clip": _CLIP,
    "colmodernvbert": _Processor(
        "",
        "<|begin_of_text|>User:<image>Describe the image.<end_of_utterance>\nAssistant:",
        "cls_token ~ $stated ~ part.text ~ '<end_of_utterance>' * 10 ~ sep_token",
        "cls_token ~ part.text ~ sep_token",
        "cls_token ~ $stated ~ sep_token",
    ),
    "colpali": _Processor(
        "Question: ",
        "Describe the image.",
        "bos_token ~ $stated ~ part.text ~ pad_token|default('') * 10 ~ '\\n'",
        "bos_token ~ part.text",
        "'<image>' ~ bos_token ~ $stated ~ '\\n'",
    ),
    "colqwen2": _Processor(
        "Query: ",
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe the image."
        "<|im_end|><|endoftext|>",
        "$stated ~ part.text ~ pad_token|default('') * 10 ~ '\\n'",
        "part.text",
        "$stated",
    ),
    "metaclip_2": _CLIP,
    "siglip": _SIGLIP,
    "siglip2": _SIGLIP,
}


_RERANK = "tokenizer.chat_template.rerank"
_PLACES = re.compile(r"\{(query|document)\}")
_PAIR = """\
{%- set texts = namespace(query="", document="") -%}
{%- for message in messages -%}
{%- if message.role == "query" -%}{%- set texts.query = message.content -%}
{%- elif message.role == "document" -%}{%- set texts.document = message.content -%}
{%- else -%}
{{ raise_exception("the template has an instruction: send a query and a document alone") }}
{%- endif -%}
{%- endfor -%}
"""


def pair_template(metadata: Mapping[str, Any]) -> str | None:
    """The chat template for pairs of a GGUF file with this metadata; None if it has none.

    Raises:
        RenderError: its template lacks one of the two texts.
    """
    text = metadata.get(_RERANK)
    if not isinstance(text, str):
        return None
    pieces = _PLACES.split(text)
    if not {"query", "document"} <= set(pieces[1::2]):
        raise RenderError(
            f"{_RERANK} of the GGUF file lacks {{query}} or {{document}}: replace it with"
            " --chat-template"
        )
    written = (
        f"{{{{ texts.{piece} }}}}" if index % 2 else f"{{{{ {json.dumps(piece)} }}}}"
        for index, piece in enumerate(pieces)
    )
    return _PAIR + "".join(written)


def retrieval_template(model_type: object, folder: Path) -> str | None:
    """The template of a model in `folder`; None if it is none of these.

    Raises:
        RenderError: `processor_config.json` cannot be read.
    """
    found = _PROCESSORS.get(model_type) if isinstance(model_type, str) else None
    if found is None:
        return None
    stated = read_json(folder / "processor_config.json")

    def written(expression: str, key: str, default: str) -> str:
        text = stated.get(key)
        literal = json.dumps(text if isinstance(text, str) and text else default)
        return Template(expression).substitute(stated=literal)

    return _TEMPLATE.substitute(
        document=found.document,
        page=written(found.page, "visual_prompt_prefix", found.page_prompt),
        query=written(found.query, "query_prefix", found.query_prefix),
        single="true" if found.single else "false",
    )
