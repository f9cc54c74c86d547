"""The secret that engines, or nodes of one, share which connect to one another by TCP."""

from pathlib import Path

from pagemill.config import ConfigError

_MAX_BYTES = 4096


def read_secret(flag: str, path: str) -> str:
    """Returns the text of the file that `flag` names, without white space around it; "" if `path`
    is empty. That it is long enough is for the engine to check.

    Raises:
        ConfigError: the file cannot be read, or holds something else. The message has no part of
            what it holds.
    """
    if not path:
        return ""
    name = f"{flag} {path}"
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode("ascii").strip()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: a secret is printable ASCII") from None
    if len(content) > _MAX_BYTES or not text.isprintable():
        raise ConfigError(
            f"{name}: a secret is one line of printable ASCII, at most {_MAX_BYTES} bytes"
        )
    return text
