"""The text of a PDF file, by pypdf. For `worker`: only a process can bound its time and memory."""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager

from pypdf import PasswordType, PdfReader, apply_configuration
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError

from pagemill.render.errors import RenderError

_ENCRYPTED = "it is encrypted; send it without encryption"


def extract_text(data: bytes, max_pages: int, max_chars: int) -> str:
    """The text of all pages, with an empty line between two.

    Raises:
        RenderError: it is damaged, needs a password, has no text, or exceeds a limit.
        MemoryError: it takes too much memory.
    """
    texts: list[str] = []
    num_chars = 0
    # jbig2dec would be a process that the limits do not bound.
    with _damage(), apply_configuration(jbig2dec_binary=None):
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise RenderError(_ENCRYPTED)
        for number, page in enumerate(reader.pages):
            if number == max_pages:
                raise RenderError(f"it has more than {max_pages} pages; send fewer of them")
            texts.append(_unicode(page.extract_text()).strip())
            num_chars += len(texts[-1])
            if num_chars > max_chars:
                raise RenderError(
                    f"its text has more than {max_chars} characters; send fewer of its pages"
                )
    if not num_chars:
        raise RenderError(
            "its pages have no text (they may be scanned); send images of them to a model that"
            " takes images"
        )
    return "\n\n".join(filter(None, texts))


@contextmanager
def _damage() -> Generator[None]:
    try:
        yield
    except (RenderError, MemoryError):
        raise
    except FileNotDecryptedError as error:
        raise RenderError(_ENCRYPTED) from error
    except DependencyError as error:
        raise RenderError(f"it needs what this server does not have: {error}") from error
    except LimitReachedError as error:
        raise RenderError(f"it is too complex: {error}") from error
    except Exception as error:  # damaged files raise whatever pypdf's code happens to
        raise RenderError(f"it is damaged: {type(error).__name__}: {str(error)[:200]}") from error


def _unicode(text: str) -> str:
    """`text` without NUL, and without halves of surrogate pairs, which tables of a file's fonts may
    name."""
    units = text.replace("\0", "").encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace")
