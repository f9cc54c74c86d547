"""API keys in options and files, and options that name other servers."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pagemill.config.fields import ConfigError


def check_url(flag: str, url: str) -> None:
    """Raises ConfigError unless `url`, a value of the option `flag`, is that of a server."""
    try:
        parts = urlsplit(url)
        usable = url.startswith(("http://", "https://")) and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or parts.path not in ("", "/") or parts.query or "@" in parts.netloc:
        raise ConfigError(
            f"{flag}: {url!r} is not a server; write http://HOST:PORT or https://HOST:PORT"
        )


def check_key(source: str, key: str) -> None:
    """Checks an API key from `source`.

    Raises:
      ConfigError: it cannot travel in an HTTP header. The message does not contain it.
    """
    if not key or not (key.isascii() and key.isprintable()) or key != key.strip():
        raise ConfigError(f"{source}: a key is printable ASCII, not empty, not padded")


def read_key(flag: str, file: str | None) -> str:
    """The key in `file`, which the option `flag` names; "" if there is none.

    Raises:
        ConfigError: the file cannot be read, or holds no key.
    """
    if file is None:
        return ""
    name = f"{flag} {file}"
    try:
        key = Path(file).expanduser().read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: a key is printable ASCII") from None
    check_key(name, key)
    return key
