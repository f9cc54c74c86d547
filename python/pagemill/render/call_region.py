"""Reads one region of calls, by the states of a tool format."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping

from pagemill.render.events import CallArguments, CallEnd, CallStart, Event, Text
from pagemill.render.formats.format import (
    MAX_BODY_CHARS,
    MAX_HEADER_CHARS,
    Body,
    BodyReader,
    Fork,
    Gap,
    Header,
    MalformedError,
    Schema,
    State,
    Value,
)
from pagemill.render.formats.typed_values import parameter, unwrapped
from pagemill.render.formats.values import ValueWriter

_SPACE = " \t\r\n"
_compiled = functools.cache(functools.partial(re.compile, flags=re.DOTALL))


class CallRegion:
    """From a marker that opens calls to the answer again. `events` takes what is found.

    Until the first call, all text is kept: `abandon` gives it back if there is none.
    """

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        """`schemas`: of the tools' parameters, by the tool's name."""
        self.events: list[Event] = []
        self.num_ended = 0
        self._schemas = schemas
        self._state: State = Gap({})
        self._keeps_text = True
        self._raw: list[str] | None = None
        self._num_raw = 0
        self._name: str | None = None  # of the open call
        self._num_keys: int | None = None  # of an open call whose values come one by one
        self._key: str | None = None
        self._declared: str | None = None
        self._kept: list[str] = []  # of a header
        self._num_kept = 0
        self._value: ValueWriter | None = None
        self._wrapped: list[str] | None = None  # a value that may be all arguments
        self._num_wrapped = 0
        self._reader: BodyReader | None = None
        self._has_junk = False
        self._then: str | None = None
        self._num_before = 0

    # What readers call: `format.CallWriter`.

    def start(self, name: str, call_id: str = "") -> None:
        """A call begins."""
        self._raw = None
        self._name = name
        self.events.append(CallStart(name, call_id))

    def arguments(self, text: str) -> None:
        """A part of the open call's arguments."""
        if text:
            self.events.append(CallArguments(text))

    def end(self) -> None:
        """The open call is complete."""
        self._end(complete=True)

    @property
    def schema(self) -> Schema | None:
        """That of the open call's tool."""
        return self._schemas.get(self._name) if self._name is not None else None

    @property
    def in_string(self) -> bool:
        """True if a marker at this place is data."""
        return self._reader is not None and self._reader.in_string

    @property
    def then(self) -> str | None:
        """Where the text that was given leads without a marker; None: the state goes on."""
        return self._then

    def open(self, marker: str, keeps_text: bool) -> None:
        """Begins a region at the marker that opens it; `enter` follows.

        Args:
            marker: what was read.
            keeps_text: whether what turns out to be no call is text.
        """
        self._keeps_text = keeps_text
        self._raw, self._num_raw = [marker] if keeps_text else None, len(marker)
        self._num_before = self.num_ended

    def enter(self, state: State, marker: str) -> None:
        """Begins a state to which `marker` led.

        Raises:
            MalformedError: the marker should begin the body, but does not.
        """
        self._state = state
        if not state.in_call and self._name is not None:
            self._end_elements()
        self._kept, self._num_kept = [], 0
        self._reader = self._value = None
        self._has_junk = False
        self._then = None
        if isinstance(state, Value):
            self._begin_value(state)
        elif isinstance(state, Body):
            self._reader = state.reader()
            if state.in_call:
                self._num_keys = None
            if state.keeps_marker and marker:
                self._reader.push(marker, self)

    def give(self, text: str) -> int:
        """Takes text of the present state; returns how much of it belongs there.

        Raises:
            MalformedError: it is not in the format; `at` says from where on.
        """
        if self._raw is None:
            return self._take(text)
        room = MAX_BODY_CHARS - self._num_raw
        try:
            consumed = self._take(text[:room])
        except MalformedError as error:
            self._keep_raw(text[: error.at])
            raise
        self._keep_raw(text[:consumed])
        if self._keeps_raw and consumed == room < len(text):
            raise MalformedError(room)
        return consumed

    def leave(self, marker: str, target: str) -> str:
        """The present state is over because of `marker`, which is no data and leads to `target`;
        returns the state that `enter` has to begin.

        Raises:
            MalformedError: what was read is not in the format.
        """
        if self._raw is None and self._keeps_text and self._is_between:
            self._raw, self._num_raw = [], 0
        self._keep_raw(marker)
        if self._raw is not None and self._num_raw > MAX_BODY_CHARS:
            raise MalformedError
        state = self._state
        if isinstance(state, Header):
            self._read_header(state)
        elif isinstance(state, Fork) and marker == state.marker:
            return self._choose(state)
        elif isinstance(state, Value):
            self._end_value()
        elif self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close(self)
            if self._name is not None and not state.in_call:
                self._end(complete=False)
        return target

    def close(self) -> str:
        """The region is over; returns its text if there was no call in it."""
        if self._name is not None:
            self._end_elements()
        text = self.abandon()
        return text if self.num_ended == self._num_before else ""

    def cut(self, half: str = "") -> str:
        """The output ends here, with `half` a marker; as `close`, but the open call is not
        complete."""
        self._keep_raw(half)
        if self._reader is not None and not self._state.in_call:
            with contextlib.suppress(MalformedError):
                self._reader.close(self)
        text = self.abandon()
        return text if self.num_ended == self._num_before else ""

    def abandon(self) -> str:
        """What was opened last is no call: returns its text."""
        raw, self._raw = self._raw, None
        if self._name is not None:
            self._end(complete=False)
        return "".join(raw or ())

    def _take(self, text: str) -> int:
        state, reader = self._state, self._reader
        if reader is not None:
            consumed = reader.push(text, self)
            if consumed is not None:
                self._reader = None
                self._then = state.then if isinstance(state, Body) else None
                return consumed
        elif isinstance(state, Header | Fork):
            room = MAX_HEADER_CHARS - self._num_kept
            self._kept.append(text[:room])
            self._num_kept += len(text)
            if len(text) > room:
                raise MalformedError(room)
        elif isinstance(state, Value):
            if self._value is not None:
                self._write_value(self._value.push(text))
        else:
            return self._take_between(text)
        return len(text)

    @property
    def _is_between(self) -> bool:
        """Not within a call, or what may be one."""
        state = self._state
        is_ended = isinstance(state, Body) and self._reader is None
        return self._name is None and (isinstance(state, Gap) or is_ended)

    def _take_between(self, text: str) -> int:
        junk = text if self._has_junk else text.lstrip(_SPACE)
        state = self._state
        if junk and isinstance(state, Gap) and state.otherwise is not None:
            self._then = state.otherwise
            return len(text) - len(junk)
        if junk and not (isinstance(state, Gap) and state.in_call):
            if self._raw is not None:
                raise MalformedError(len(text) - len(junk))
            self._has_junk = True
            self.events.append(Text(junk))
        return len(text)

    @property
    def _keeps_raw(self) -> bool:
        """True until a call begins."""
        return self._raw is not None

    def _keep_raw(self, text: str) -> None:
        if self._raw is None:
            return
        self._raw.append(text)
        self._num_raw += len(text)

    def _read_header(self, header: Header) -> None:
        found = _compiled(header.pattern).fullmatch("".join(self._kept))
        groups: dict[str, str | None] = found.groupdict() if found is not None else {}
        if header.in_call:
            self._key = groups.get("key", self._key)
            self._declared = groups.get("type", self._declared)
            return
        if found is None:
            raise MalformedError
        self._begin_named(groups)

    def _choose(self, fork: Fork) -> str:
        text = "".join(self._kept)
        for pattern, target in fork.cases:
            if found := _compiled(pattern).fullmatch(text):
                self._begin_named(found.groupdict())
                return target
        raise MalformedError

    def _begin_named(self, groups: Mapping[str, str | None]) -> None:
        """Begins a call if a header's groups name one."""
        if name := groups.get("name"):
            if self._name is not None:
                self._end_elements()
            self.start(name, groups.get("id") or "")
            self._num_keys = 0

    def _begin_value(self, value: Value) -> None:
        if self._key is None or self._num_keys is None or self._name is None:
            return
        self._unwrap(None)
        begin = ("{" if self._num_keys == 0 else ", ") + json.dumps(self._key) + ": "
        schema = self.schema
        if (
            self._num_keys == 0
            and self._key in value.wrappers
            and schema is not None
            and parameter(schema, self._key) is None
        ):
            self._wrapped, self._num_wrapped = [begin], 0
        else:
            self.arguments(begin)
        self._num_keys += 1
        self._value = ValueWriter(value, self.schema, self._key, self._declared)

    def _write_value(self, text: str) -> None:
        """Appends a part of the present value's JSON."""
        if self._wrapped is None:
            self.arguments(text)
            return
        self._wrapped.append(text)
        self._num_wrapped += len(text)
        if self._num_wrapped > MAX_BODY_CHARS:
            self._unwrap(None)

    def _unwrap(self, schema: Schema | None) -> bool:
        """Writes the value that was kept, if any: True if it is all arguments of a call of a tool
        with this `schema`; otherwise it is a value like any other."""
        if self._wrapped is None:
            return False
        (begin, *parts), self._wrapped = self._wrapped, None
        written = "".join(parts)
        whole = unwrapped(written, schema) if schema is not None else None
        self.arguments(begin + written if whole is None else whole)
        return whole is not None

    def _end_value(self) -> None:
        if self._value is not None:
            self._write_value(self._value.end())
        self._value = self._key = self._declared = None

    def _end_elements(self) -> None:
        """Ends a call whose arguments came one by one, or that had none."""
        if self._num_keys is not None and not self._unwrap(self.schema):
            self.arguments("}" if self._num_keys else "{}")
        self._end(complete=self._num_keys is not None)

    def _end(self, *, complete: bool) -> None:
        self._unwrap(None)
        self._name = self._num_keys = None
        self.num_ended += 1
        self.events.append(CallEnd(complete))
