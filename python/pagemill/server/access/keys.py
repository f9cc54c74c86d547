"""Where the server's API keys come from, and a warning if there are none but should be."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pagemill.config import ConfigError, ServerConfig, read_environment
from pagemill.config.env import refuse_foreign_key
from pagemill.config.other_servers import check_key
from pagemill.config.sampling import INT32_MAX
from pagemill.config.yaml_file import read_yaml
from pagemill.server.access.caller import DEFAULT_GRANTS, GRANTS, Caller, Scope
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.protocol.request_id import NAME

_LOGGER = logging.getLogger("pagemill.server")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The SHA-256 digest of a key, and its owner. The key itself is not kept."""

    digest: bytes
    caller: Caller

    @classmethod
    def of(cls, key: str, caller: Caller) -> ApiKey:
        """The key `key`."""
        return cls(sha256(key.encode()).digest(), caller)


_Limit = Annotated[int, Meta(ge=1, le=INT32_MAX)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One key of a YAML file."""

    key: str | None = None
    sha256: str | None = None
    tenant: str | None = None
    scopes: list[str] | None = None
    concurrency: _Limit | None = None
    requests_per_minute: _Limit | None = None
    tokens_per_minute: _Limit | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] | None = None
    models: list[str] | None = None


def api_keys(config: ServerConfig, *, allows_priority: bool = True) -> tuple[ApiKey, ...]:
    """The keys of `--api-key` and `--api-key-file`, or without either those of PAGEMILL_API_KEY.

    `allows_priority`: the engine takes requests with one.

    Raises:
        ConfigError: the file cannot be read, or holds no key or one that cannot be used, or
            there is none and another server's variable has one.
    """
    if config.api_key_file is None:
        keys = plain_keys(config.api_key or read_environment().api_keys)
        if not keys:
            refuse_foreign_key()
        return keys
    path = Path(config.api_key_file).expanduser()
    name = f"--api-key-file {path}"
    if path.suffix not in (".yaml", ".yml"):
        keys = plain_keys((*config.api_key, *_lines(name, path)))
    else:
        keys = (*plain_keys(config.api_key), *_entries(name, path))
    _check_distinct(name, keys)
    if not allows_priority and any(key.caller.priority for key in keys):
        raise ConfigError(
            f"{name}: a key has a `priority`, which needs --scheduling-policy priority"
        )
    _warn_if_readable(name, path)
    return keys


def plain_keys(keys: Sequence[str]) -> tuple[ApiKey, ...]:
    """Keys of which nothing else is known: they are numbered, and share a tenant."""
    return tuple(ApiKey.of(key, Caller(f"key-{i}")) for i, key in enumerate(keys, 1))


def warn_if_open(host: str, keys: Sequence[ApiKey]) -> None:
    """Warns about a server that other machines can reach and that checks no key."""
    if keys:
        return
    try:
        address = ip_address(host)
    except ValueError:
        return  # a name stands for one address, which was chosen
    if address.is_unspecified:
        _LOGGER.warning(
            "listening on all interfaces (%s) without an API key: every machine that can reach"
            " this port can use the server. Set --api-key-file or --api-key, or --host 127.0.0.1",
            host,
        )


def _lines(name: str, path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: a key is printable ASCII") from None
    lines = (line.strip() for line in text.splitlines())
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{name} holds no key; write one a line")
    for number, key in enumerate(keys, 1):
        check_key(f"{name}, key {number}", key)
    return keys


def _entries(name: str, path: Path) -> Iterator[ApiKey]:
    """Keys by name. No message contains what might be a key."""
    entries = read_yaml(path, "--api-key-file")
    if not entries:
        raise ConfigError(f"{name} holds no key; write `NAME: {{key: KEY}}`")
    for number, (key_id, fields) in enumerate(entries.items(), 1):
        where = f"{name}, key {number}"
        if not NAME.fullmatch(key_id.encode()):
            raise ConfigError(f"{where}: a name is 1 to 128 printable characters without spaces")
        try:
            entry = msgspec.convert(fields, _Entry)
        except msgspec.ValidationError:
            raise ConfigError(
                f"{where}: its fields are `key` or `sha256`, `tenant`, `scopes` and `models`, which"
                " are lists, `priority`, a number, and `concurrency`, `requests_per_minute` and"
                " `tokens_per_minute`, which are numbers from 1 on; quote a text that looks like a"
                " number"
            ) from None
        yield ApiKey(_digest(where, entry), _caller(where, key_id, entry))


def _digest(where: str, entry: _Entry) -> bytes:
    if (entry.key is None) == (entry.sha256 is None):
        raise ConfigError(f"{where}: state either `key` or `sha256`")
    if entry.key is not None:
        check_key(where, entry.key)
        return sha256(entry.key.encode()).digest()
    try:
        digest = bytes.fromhex(entry.sha256 or "")
    except ValueError:
        digest = b""
    if len(digest) != sha256().digest_size:
        raise ConfigError(f"{where}: `sha256` is 64 hexadecimal digits (printf %s KEY | sha256sum)")
    return digest


def _caller(where: str, key_id: str, entry: _Entry) -> Caller:
    tenant = key_id if entry.tenant is None else entry.tenant
    if tenant and not NAME.fullmatch(tenant.encode()):
        raise ConfigError(f"{where}: a tenant is at most 128 printable characters without spaces")
    for scope in entry.scopes or ():
        if scope not in GRANTS:
            raise ConfigError(f"{where}: a scope is one of {', '.join(GRANTS)}")
    limits = KeyLimits(entry.concurrency, entry.requests_per_minute, entry.tokens_per_minute)
    return Caller(
        key_id,
        tenant,
        DEFAULT_GRANTS if entry.scopes is None else frozenset(map(Scope, entry.scopes)),
        limits if limits != KeyLimits() else None,
        None if entry.models is None else frozenset(entry.models),
        entry.priority,
    )


def _check_distinct(name: str, keys: Sequence[ApiKey]) -> None:
    digests: dict[bytes, str] = {}
    for key in keys:
        first = digests.setdefault(key.digest, key.caller.key_id)
        if first != key.caller.key_id:
            raise ConfigError(f"{name}: {first!r} and {key.caller.key_id!r} are the same key")
    if len({key.caller.key_id for key in keys}) < len(keys):
        raise ConfigError(f"{name}: names key-1, key-2, ... are those of --api-key")


def _warn_if_readable(name: str, path: Path) -> None:
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        # Not refused: secrets that Docker and Kubernetes mount are readable by all of a container.
        _LOGGER.warning("%s can be read by other users; chmod 600 it unless that is meant", name)
