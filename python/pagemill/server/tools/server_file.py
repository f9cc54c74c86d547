"""`--mcp-servers`: the file in which an operator names servers of tools.

weather:
  url: http://127.0.0.1:9000/mcp
  header_files: {Authorization: /run/secrets/weather}
  allowed_tools: [get_weather]
  timeout: 20
files:
  command: [python, -m, file_tools]
  require_approval: true
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pagemill.config import ConfigError
from pagemill.config.yaml_file import read_yaml

_FLAG = "--mcp-servers"
# Without `__`, which is between it and the name of a tool.
_LABEL = re.compile(r"(?=.{1,64}$)[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_Text = Annotated[str, Meta(min_length=1)]


class ServerSpec(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One server: one at a `url`, or a `command` that speaks MCP on its pipes.

    The values of HTTP headers and of the command's environment variables are in files, which are
    read at each connection.
    """

    label: str = ""
    url: str | None = None
    command: Annotated[list[_Text], Meta(min_length=1)] | None = None
    header_files: dict[_Text, _Text] = {}
    env_files: dict[_Text, _Text] = {}
    allowed_tools: list[_Text] | None = None
    require_approval: bool = False
    timeout: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """Seconds, of a listing and of a call."""
    max_result_bytes: Annotated[int, Meta(ge=1, le=2**24)] = 65536
    """Of the text of one result."""
    max_concurrent_calls: Annotated[int, Meta(ge=1, le=1024)] = 16
    """Of one process of the server; further calls wait, within their time."""


def read_server_file(path: str) -> list[ServerSpec]:
    """The servers of the file, in its order.

    Raises:
        ConfigError: the file cannot be used.
    """
    where = f"{_FLAG} {path}"
    specs = [
        _spec(f"{where}, {label[:64]!r}", label, fields)
        for label, fields in read_yaml(Path(path).expanduser(), _FLAG).items()
    ]
    if not specs:
        raise ConfigError(f"{where} names no server; write `NAME: {{url: URL}}`")
    return specs


def read_values(files: Mapping[str, str]) -> dict[str, str]:
    """What the files hold, without white space around it, by the same names.

    Raises:
        OSError: one cannot be read.
        UnicodeDecodeError: one is not text.
    """
    return {name: Path(path).read_text(encoding="utf-8").strip() for name, path in files.items()}


def _spec(where: str, label: str, fields: object) -> ServerSpec:
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{where}: a name is 1 to 64 letters, digits, `-`, and single `_` within")
    try:
        spec = msgspec.convert(fields, ServerSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    if spec.label:
        raise ConfigError(f"{where}: the name is the label; leave `label` out")
    if (spec.url is None) == (spec.command is None):
        raise ConfigError(f"{where}: state either `url` or `command`")
    if spec.url is not None:
        parts = urlsplit(spec.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{where}: `url` is http:// or https://, and a host")
        if parts.username is not None or parts.password is not None:
            raise ConfigError(f"{where}: put the credentials of `url` into `header_files`")
    if (spec.header_files and spec.url is None) or (spec.env_files and spec.command is None):
        raise ConfigError(f"{where}: `header_files` go with `url`, `env_files` with `command`")
    try:
        read_values(spec.header_files | spec.env_files)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}") from None
    return msgspec.structs.replace(spec, label=label)
