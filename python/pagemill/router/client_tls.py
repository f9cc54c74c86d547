"""TLS to servers whose URLs begin with https://."""

from __future__ import annotations

import ssl
from pathlib import Path

from pagemill.config import ConfigError, RouterConfig

_ALPN = ["http/1.1"]


def client_context(config: RouterConfig) -> ssl.SSLContext | None:
    """What connections to servers are encrypted with: certificates of servers are checked against
    `--server-ca-file`, or the system's authorities. None: no server has https.

    Raises:
        ConfigError: a file cannot be used.
    """
    if not any(url.startswith("https:") for url in config.server):
        return None
    try:
        context = ssl.create_default_context(cafile=_expanded(config.server_ca_file))
    except OSError as error:
        raise ConfigError(f"--server-ca-file {config.server_ca_file}: {_reason(error)}") from None
    context.set_alpn_protocols(_ALPN)
    certificate = _expanded(config.server_certfile)
    if certificate is None:
        return context
    try:
        # A key with a password would be asked for on the terminal.
        key = _expanded(config.server_keyfile)
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--server-certfile {certificate}: {_reason(error)}") from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password; remove it (openssl pkey)")


def _expanded(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"it is not PEM ({error.reason or error})"
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
