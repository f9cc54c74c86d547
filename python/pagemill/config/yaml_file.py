"""`--config file.yaml`: the same options as the flags, one a line.

model: /models/smollm2.gguf
max-model-len: 4k
api-key: [first, second]
"""

from pathlib import Path
from typing import Any, cast

from pagemill.config.fields import ConfigError

_MAX_FILE_BYTES = 2**20


def read_yaml(path: str | Path, flag: str = "--config") -> dict[str, Any]:
    """Returns the file's mapping of name -> value, names as written. `flag` names the file.

    Raises:
      ConfigError: the file cannot be read, is not YAML, is not a mapping, or repeats a name.
    """
    import yaml  # here, because most commands run without a file

    try:
        if Path(path).stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{flag} {path}: larger than 1 MiB")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        parser = cast(Any, yaml)  # its types are partly unknown
        node = parser.compose(text, Loader=yaml.SafeLoader)
        values = parser.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # Where, and not what: the file may hold keys.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigError(f"{flag} {path} is not YAML{where}") from None
    if values is None:
        return {}
    mapping = cast(dict[Any, Any], values if isinstance(values, dict) else {0: 0})
    if not all(isinstance(key, str) for key in mapping):
        raise ConfigError(f"{flag} {path}: expected lines of the form `name: value`")
    if isinstance(node, yaml.MappingNode):
        names = [str(key.value) for key, _ in node.value]
        if len(set(names)) < len(names):  # YAML itself would let the last one win silently
            repeated = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{flag} {path}: {repeated!r} is given twice")
    return mapping
