"""`pagemill generate`: many prompts in one batch, without a server."""

import json
import sys
from argparse import Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagemill.config import ConfigError, EngineConfig, SamplingConfig, option
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser

if TYPE_CHECKING:
    from pagemill.engine.llm import LLM, Output


@dataclass(frozen=True, slots=True)
class PromptsConfig:
    """Prompts: what text is generated from."""

    prompt: tuple[str, ...] = option((), "A prompt; may be repeated.", short="p")
    prompts_file: str | None = option(
        None, "A file with a prompt on each line; - is standard input."
    )
    chat: bool = option(
        True,
        "Put each prompt into the model's chat template, if it has one, as a user's message."
        " Off: the prompt is continued as it is.",
    )
    system_prompt: str | None = option(None, "Instruction before each prompt; needs --chat.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill generate",
        "Generates text from prompts in one batch, in this process, and prints the texts in the"
        " order of the prompts.",
        'pagemill generate -p "Write a haiku about rain." --temperature 0\n'
        "pagemill generate model.gguf --prompts-file prompts.txt --json > outputs.jsonl",
    )
    made.add_argument("--json", action="store_true", help="print a line of JSON for each prompt")
    for part in (PromptsConfig, SamplingConfig, EngineConfig):
        made.add_config(part)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Generates and prints."""
    parts = (PromptsConfig, SamplingConfig, EngineConfig)
    config = parser.read(PromptsConfig, args, parts)
    sampling = parser.read(SamplingConfig, args, parts)
    engine = parser.read(EngineConfig, args, parts)
    texts = _texts(config)
    from pagemill.engine.llm import LLM

    with LLM.from_config(engine) as llm:
        for text, output in zip(texts, _outputs(llm, config, sampling, texts), strict=True):
            print(_json_line(text, output) if args.json else output.choices[0].text)
    return 0


def _outputs(
    llm: "LLM", config: PromptsConfig, sampling: SamplingConfig, texts: list[str]
) -> "list[Output]":
    from pagemill.cli.local_text import completion_params, sampling_params

    in_chat = config.chat and llm.renderer.has_chat_template
    if config.system_prompt is not None and not in_chat:
        raise ConfigError("--system-prompt needs --chat and a model with a chat template")
    if in_chat:
        system = [{"role": "system", "content": config.system_prompt}]
        first = system if config.system_prompt is not None else []
        conversations = [[*first, {"role": "user", "content": text}] for text in texts]
        return llm.chat(conversations, sampling_params(sampling))
    return llm.generate(texts, completion_params(sampling))


def _json_line(prompt: str, output: "Output") -> str:
    (choice,) = output.choices
    fields = {
        "prompt": prompt,
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "prompt_tokens": len(output.prompt_token_ids),
        "output_tokens": len(choice.token_ids),
    }
    return json.dumps(fields, ensure_ascii=False)


def _texts(config: PromptsConfig) -> list[str]:
    texts = list(config.prompt)
    if config.prompts_file == "-":
        texts += sys.stdin.read().splitlines()
    elif config.prompts_file is not None:
        with open(config.prompts_file, encoding="utf-8") as file:
            texts += file.read().splitlines()
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ConfigError("no prompt: give --prompt TEXT or --prompts-file FILE")
    return texts
