"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that signs itself, and its key; PEM."""

    certificate: Path
    key: Path

    def client(self) -> ssl.SSLContext:
        """What a client needs to trust it."""
        return ssl.create_default_context(cafile=str(self.certificate))


def make_certificate(folder: Path, name: str, *, password: str = "") -> Certificate:
    """Makes a certificate of `localhost` and 127.0.0.1 in `folder`; `name` is its issuer."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    protection = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-days", "2", "-subj", f"/CN={name}", *protection),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return made
