"""How models for retrieval of images read queries and images, as a chat template for pairs: their
processors write both, and they have no template.

    template = retrieval_template(config["model_type"], folder)
    # {"role": "query", "content": "What is paging?"} -> "Query: What is paging?<pad>...\\n"

`processor_config.json` may have other texts, `query_prefix` and `visual_prompt_prefix`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import NamedTuple

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
