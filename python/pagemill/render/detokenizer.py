"""Token ids to text, a few at a time.

Bytes go through an incremental UTF-8 decoder, so that the text is the same however the ids
were portioned, and never half a character. Bytes that are not UTF-8 become U+FFFD.
"""

import codecs
from collections.abc import Sequence

from pagemill.render.events import Piece
from pagemill.render.token_bytes import TokenBytes

_CONTEXT_BYTES = 4  # a character has at most so many, so it began at most so many ago


class Detokenizer:
    """One text in the making. Not thread-safe; cheap to make.

    After `flush` it must not be used.
    """

    def __init__(
        self,
        token_bytes: TokenBytes,
        prompt_token_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
    ) -> None:
        """Begins after `prompt_token_ids`, whose text is not repeated.

        A space at the start of the whole text is dropped if the vocabulary adds one there; the
        first token after a prompt keeps its own. A character that the prompt left unfinished comes
        out with the token that finishes it.
        """
        self._token_bytes = token_bytes
        self._skip_special = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = token_bytes.strips_leading_space
        if self._at_start:
            self._at_start = all(not self._visible(token_id) for token_id in prompt_token_ids)
        # Brings the decoder to the end of the prompt; the prompt's own text is dropped. Tokens
        # without bytes may stand behind half a character.
        context = b""
        for token_id in reversed(prompt_token_ids):
            context = self._visible(token_id) + context
            if len(context) >= _CONTEXT_BYTES:
                break
        self._utf8.decode(context)

    def push(self, token_ids: Sequence[int]) -> str:
        """Returns the text that `token_ids` complete."""
        data = b"".join([self._visible(token_id) for token_id in token_ids])
        if self._at_start and data:
            self._at_start = False
            data = data.removeprefix(b" ")
        return self._utf8.decode(data)

    def piece(self, token_id: int) -> Piece:
        """Returns the text that one token completes."""
        special = self._token_bytes.is_special(token_id)
        if special and self._skip_special:
            return Piece("", token_id, True)
        data = self._token_bytes[token_id]
        if self._at_start and data:
            self._at_start = False
            data = data.removeprefix(b" ")
        return Piece(self._utf8.decode(data), token_id, special)

    def flush(self) -> str:
        """Returns what an unfinished character leaves: U+FFFD or nothing."""
        return self._utf8.decode(b"", final=True)

    def _visible(self, token_id: int) -> bytes:
        if self._skip_special and self._token_bytes.is_special(token_id):
            return b""
        return self._token_bytes[token_id]
