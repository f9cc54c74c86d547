"""LoRA adapters: what requests may name beside the model."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option

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
    max_loras: int = option(
        8,
        "Different adapters among the requests of one step; requests with further ones wait.",
        unit="adapters",
        allowed=Range(1, 1024),
    )
    max_lora_rank: int = option(
        16,
        "On a device (--device): each adapter of a step has memory there that is reserved at the"
        " start, enough for this rank in all layers in float32. Fewer layers or bfloat16 leave room"
        " for larger ranks. The CPU reserves none.",
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
            ConfigError: one is out of range, or an adapter of `lora_modules` is not name=folder.
        """
        check(self)
        names = [name for name, _ in self.modules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"--lora-modules: two adapters have the name {twice!r}")
        if len(names) > self.max_cpu_loras:
            raise ConfigError(
                f"--lora-modules has {len(names)} adapters, more than --max-cpu-loras"
                f" {self.max_cpu_loras}"
            )

    @property
    def enabled(self) -> bool:
        """Whether requests may name adapters."""
        return self.enable_lora or bool(self.lora_modules) or self.lora_folder is not None

    @property
    def slots(self) -> int:
        """Adapters of one step; 0 if there are none."""
        return self.max_loras if self.enabled else 0

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
