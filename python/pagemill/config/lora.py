"""LoRA adapters: what requests may name beside the model, and what those with media run under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option
from pagemill.config.media import MEDIA_KINDS

MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """LoRA adapters, which requests name as their model."""

    enable_lora: bool = option(
        False,
        "Serve LoRA adapters beside the model: those of --lora-modules, and those that the"
        " operator's route /v1/load_lora_adapter loads.",
    )
    lora_modules: tuple[str, ...] = option(
        (),
        "Adapters to load at the start, as name=folder or name=owner/name on the hub, in the format"
        " of PEFT (adapter_config.json and adapter_model.safetensors). Implies --enable-lora.",
    )
    lora_folder: str | None = option(
        None,
        "Folder whose folders are adapters: one is loaded when a request first names its folder."
        " When --max-cpu-loras are in memory, those of this folder leave it, the least recently"
        " used first. Implies --enable-lora.",
    )
    default_mm_loras: dict[str, str] | None = option(
        None,
        "Adapter under which a request runs that has media of a kind and names no adapter, as JSON:"
        ' {"image": "folder", "audio": "owner/name"}; with media of several kinds it is the first'
        " one that is listed. {} = none. Default: those that the checkpoint has, of Granite Speech"
        " and Phi-4 multimodal.",
    )
    max_loras: int = option(
        8,
        "Different adapters among the requests of one step; requests with further ones wait. If"
        " there are only those of --default-mm-loras, as many as these.",
        unit="adapters",
        allowed=Range(1, 1024),
    )
    max_lora_rank: int = option(
        16,
        "On a device (--device): each adapter of a step has memory there that is reserved at the"
        " start, enough for this rank in all layers in float32. Fewer layers or bfloat16 leave room"
        " for larger ranks. An adapter of --default-mm-loras with a larger rank raises it. The CPU"
        " reserves none.",
        unit="ranks",
        allowed=Range(1, 512),
    )
    max_cpu_loras: int = option(
        64,
        "Adapters in memory at most; see --lora-folder. Without one loading more is refused.",
        unit="adapters",
        allowed=Range(1, 4096),
    )

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            ConfigError: one is out of range, an adapter of `lora_modules` is not name=folder, or
                one of `default_mm_loras` is not of a kind of media.
        """
        check(self)
        for kind, path in self.media.items():
            if (
                kind not in MEDIA_KINDS or type(path) is not str or not path
            ):  # JSON may have anything
                raise ConfigError(
                    f"--default-mm-loras: {kind!r:.60}: {path!r:.60} is not known; write"
                    ' \'{"image": "FOLDER", "audio": "FOLDER"}\', or {} for no adapters'
                )
        names = [name for name, _ in self.modules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"--lora-modules: two adapters have the name {twice!r}")
        taken = next((name for name in names if name in self.media), None)
        if taken is not None:
            raise ConfigError(
                f"--lora-modules: {taken!r} is the name of the adapter of requests with"
                f" {taken} (--default-mm-loras); give this one another name"
            )
        loaded = len(names) + len(self.media)
        if loaded > self.max_cpu_loras:
            raise ConfigError(
                f"--lora-modules and --default-mm-loras have {loaded} adapters, more than"
                f" --max-cpu-loras {self.max_cpu_loras}"
            )

    @property
    def enabled(self) -> bool:
        """Whether requests may run under adapters."""
        return self._named or bool(self.media)

    @property
    def slots(self) -> int:
        """Adapters of one step; 0 if there are none."""
        return self.max_loras if self._named else len(self.media)

    @property
    def flags(self) -> str:
        """The options that enable adapters, for refusals."""
        if self._named:
            return "--enable-lora and --lora-modules"
        return "adapters of media (--default-mm-loras {} serves the model without them)"

    @property
    def media(self) -> Mapping[str, str]:
        """The folders of `default_mm_loras` by the kinds of media; empty if there are none, or
        those of the checkpoint are not found yet."""
        return self.default_mm_loras or {}

    @property
    def _named(self) -> bool:
        return self.enable_lora or bool(self.lora_modules) or self.lora_folder is not None

    @property
    def modules(self) -> tuple[tuple[str, str], ...]:
        """The names and folders of `lora_modules`."""
        pairs: list[tuple[str, str]] = []
        for entry in self.lora_modules:
            name, equals, path = entry.partition("=")
            if not equals or not path or not 0 < len(name) <= MAX_NAME_CHARS:
                raise ConfigError(
                    f"--lora-modules: {entry!r} is not name=folder, with a name of at most"
                    f" {MAX_NAME_CHARS} characters"
                )
            pairs.append((name, path))
        return tuple(pairs)
