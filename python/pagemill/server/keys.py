"""Where the server's API keys come from, and a word when there are none but should be."""

from __future__ import annotations

import logging
import stat
from ipaddress import ip_address
from pathlib import Path

from pagemill.config import ConfigError, ServerConfig, read_environment
from pagemill.config.server import check_key

_LOGGER = logging.getLogger("pagemill.server")


def api_keys(config: ServerConfig) -> tuple[str, ...]:
    """The keys of `--api-key` and `--api-key-file`, or without either those of PAGEMILL_API_KEY.

    Raises:
        ConfigError: the file cannot be read, or holds no key or one that cannot be used.
    """
    if config.api_key_file is None:
        return config.api_key or read_environment().api_keys
    return (*config.api_key, *_read(Path(config.api_key_file).expanduser()))


def warn_if_open(host: str, keys: tuple[str, ...]) -> None:
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


def _read(path: Path) -> tuple[str, ...]:
    name = f"--api-key-file {path}"
    try:
        text, mode = path.read_text(encoding="ascii"), path.stat().st_mode
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
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        # Not refused: secrets that Docker and Kubernetes mount are readable by all of a container.
        _LOGGER.warning("%s can be read by other users; chmod 600 it unless that is meant", name)
    return keys
