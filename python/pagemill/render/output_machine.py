"""The formats of one model, and the table of states that a choice of it is read by."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import (
    ANSWER,
    REASONING,
    Fork,
    Header,
    MessageFormat,
    ReasoningFormat,
    Said,
    Spelling,
    State,
    Targets,
    ToolFormat,
)
from pagemill.render.formats.table import PLAIN, choose_formats

BEGIN = "begin"
"""The state of an output in which reasoning may come, and has not begun."""

_WITHIN = "within"  # the same, if the output begins with reasoning
_LABEL = "label"  # behind the opener of reasoning
_ANSWER_BEGIN = "answer begin"


class TextKind(enum.Enum):
    """What the text of a state is that belongs to no call."""

    ANSWER = 0
    REASONING = 1


@dataclass(frozen=True, slots=True)
class FormatNames:
    """Formats that an operator names: of `formats.table`, "none", or None for an own choice."""

    reasoning: str | None = None
    tools: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A state of a `Machine`.

    Either `kind` says what its text is, or `state` how calls are written. `otherwise` is where
    anything but white space leads. `pattern` finds the markers of `on` that are no tokens, which
    are `texts`, longest first; None without any.
    """

    name: str
    on: Targets
    kind: TextKind | None = None
    state: State | None = None
    otherwise: str | None = None
    follows_header: bool = False
    texts: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def unsure(self, text: str, begin: int) -> int:
        """The length of the longest end of `text`, from `begin` on, that begins a marker."""
        if self.pattern is None:
            return 0
        for length in range(min(len(self.texts[0]) - 1, len(text) - begin), 0, -1):
            tail = text[-length:]
            if any(marker.startswith(tail) for marker in self.texts):
                return length
        return 0

    def may_grow(self, text: str, begin: int, marker: str) -> bool:
        """True if `text` ends with what may become a longer marker than `marker` at `begin`."""
        tail = text[begin:]
        return any(
            len(longer) > len(tail) and longer.startswith(tail)
            for longer in self.texts
            if len(longer) > len(marker)
        )


class Machine:
    """All states that a choice may be in. `marker_ids`: markers that are tokens, by id."""

    def __init__(
        self,
        nodes: Sequence[Node],
        first: str,
        markers: set[str],
        marker_ids: Mapping[int, str],
        *,
        has_messages: bool = False,
        opener: str = "",
    ) -> None:
        """`first`: the state in which an output begins if nothing else says it. `has_messages`:
        markers are no text, even if they lead to no call. `opener`: what an output that begins with
        reasoning, which is part of its answer, lacks."""
        self.has_messages = has_messages
        self.opener = opener
        self.marker_ids = {index: m for index, m in marker_ids.items() if m in markers}
        self.has_markers = bool(markers)
        self._first = first
        tokens = set(self.marker_ids.values())
        self.nodes = {node.name: _with_pattern(node, tokens) for node in nodes}

    @classmethod
    def joined(
        cls,
        reasoning: ReasoningFormat | None,
        tools: ToolFormat | None,
        marker_ids: Mapping[int, str],
    ) -> Machine:
        """The states of a reasoning format and a tool format."""
        markers = {m for each in (reasoning, tools) if each is not None for m in each.markers}
        openers = dict(tools.openers) if tools is not None else dict[str, str]()
        starts = openers | dict(tools.starts) if tools is not None else dict[str, str]()
        drops = reasoning.drops if reasoning is not None else ()
        starts |= dict.fromkeys(drops, _ANSWER_BEGIN)
        nodes = [
            Node(ANSWER, {**openers, **dict.fromkeys(drops, ANSWER)}, TextKind.ANSWER),
            Node(_ANSWER_BEGIN, starts, TextKind.ANSWER, otherwise=ANSWER),
        ]
        first = _ANSWER_BEGIN
        opener = ""
        if reasoning is not None and reasoning.is_answer:
            opener = reasoning.openers[0]
        elif reasoning is not None:
            entry = _LABEL if reasoning.label else REASONING
            to_reasoning = dict.fromkeys(reasoning.openers, entry)
            within = {**openers, **dict.fromkeys(reasoning.closers, _ANSWER_BEGIN)}
            nodes += [
                Node(BEGIN, {**starts, **to_reasoning}, TextKind.ANSWER, otherwise=ANSWER),
                Node(
                    *(REASONING, within, TextKind.REASONING),
                    follows_header=bool(reasoning.label),
                ),
                Node(
                    *(_WITHIN, {**within, **to_reasoning}, TextKind.REASONING),
                    otherwise=REASONING,
                ),
            ]
            if reasoning.label:
                label = Header(re.escape(reasoning.label), on={"\n": REASONING})
                nodes.append(Node(_LABEL, label.on, state=label))
            first = _WITHIN if reasoning.begins_within else BEGIN
        if tools is not None:
            nodes += [Node(name, state.on, state=state) for name, state in tools.states.items()]
        return cls(nodes, first, markers, marker_ids, opener=opener)

    @classmethod
    def of_messages(cls, messages: MessageFormat, marker_ids: Mapping[int, str]) -> Machine:
        """The states of a format of whole outputs."""
        nodes = [_message_node(name, state) for name, state in messages.states.items()]
        return cls(nodes, messages.first, messages.markers, marker_ids, has_messages=True)

    def first(self, begins: str | None) -> Node:
        """The state in which the output begins; see `ParserOptions`."""
        return self.nodes[begins if begins in self.nodes else self._first]


class ReasoningTokens(NamedTuple):
    """Tokens that open and close reasoning, and whether an output begins within it."""

    openers: tuple[int, ...]
    closers: tuple[int, ...]
    begins_within: bool


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one model, and which of their markers are tokens of its vocabulary.

    `messages`: if there is one, it says what is reasoning and what is a call, and there is no
    other format.
    """

    reasoning: ReasoningFormat | None = None
    tools: ToolFormat | None = None
    marker_ids: Mapping[int, str] = field(default_factory=dict[int, str])
    messages: MessageFormat | None = None
    _machines: dict[tuple[bool, bool], Machine] = field(
        default_factory=dict[tuple[bool, bool], Machine], repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        template: str,
        names: FormatNames,
        token_id: Callable[[str], int | None],
        checkpoint: Checkpoint = PLAIN,
    ) -> Formats:
        """The formats that `names` say, or else those that `template` clearly has.

        Args:
          template: source of the chat template.
          names: the operator's.
          token_id: the id of a marker that is a token of its own.
          checkpoint: what the model's files say of its formats.

        Raises:
          RenderError: a name is unknown, the two do not go together, or `checkpoint` does not say
            what a format needs.
        """
        found = choose_formats(names.reasoning, names.tools, template, checkpoint)
        markers = {m for each in found if each is not None for m in each.markers}
        ids = {index: m for m in sorted(markers) if (index := token_id(m)) is not None}
        return cls(found.reasoning, found.tools, ids, found.messages)

    @property
    def can_call(self) -> bool:
        """True if calls of tools can be read."""
        return self.tools is not None or self.messages is not None

    @property
    def spelling(self) -> Spelling | None:
        """How calls are written by grammars, if they can be."""
        kind = self.messages if self.messages is not None else self.tools
        return kind.spelling if kind is not None else None

    @property
    def has_reasoning(self) -> bool:
        """True if reasoning can be told from the answer."""
        return self.reasoning is not None or self.messages is not None

    def answers_with_reasoning(self, variables: Mapping[str, object]) -> bool:
        """True if the reasoning of an output without an answer is also its answer, for a request
        with these variables of the template."""
        if self.reasoning is None:
            return False
        switches = self.reasoning.answers_if.items()
        return any(variables.get(name) is value for name, value in switches)

    def machine(self, reasoning: bool, tools: bool) -> Machine:
        """The states of a choice of which reasoning, calls of tools or both are read."""
        wanted = (reasoning, tools)
        machine = self._machines.get(wanted)
        if machine is None:
            machine = self._machines[wanted] = self._make_machine(reasoning, tools)
        return machine

    def after_prompt(self, prompt_end: str) -> str | None:
        """The state in which an output begins whose prompt ends like this; None: as always."""
        end = prompt_end.rstrip()
        if self.messages is not None:
            for marker, state in self.messages.prompt_ends.items():
                if end.endswith(marker):
                    return state
        if self.reasoning is None or not end.endswith(tuple(self.reasoning.markers)):
            return None
        return REASONING if end.endswith(self.reasoning.openers) else BEGIN

    def after_content(self, content: str) -> str | None:
        """The state in which an output begins that continues this message."""
        kind = self.reasoning
        if kind is None or kind.is_answer:
            return ANSWER
        return REASONING if _last(content, kind.openers) > _last(content, kind.closers) else BEGIN

    def reasoning_tokens(self, begins: str | None) -> ReasoningTokens | None:
        """The tokens around the reasoning of an output that `begins` in this state; None if the
        model does not reason."""
        kind = self.reasoning
        if kind is None:
            return None
        openers = tuple(i for i, marker in self.marker_ids.items() if marker in kind.openers)
        closers = tuple(i for i, marker in self.marker_ids.items() if marker in kind.closers)
        within = begins == REASONING or (begins is None and kind.begins_within)
        return ReasoningTokens(openers, closers, within)

    def _make_machine(self, reasoning: bool, tools: bool) -> Machine:
        if self.messages is not None and (reasoning or tools):
            return Machine.of_messages(self.messages, self.marker_ids)
        return Machine.joined(
            self.reasoning if reasoning else None, self.tools if tools else None, self.marker_ids
        )


def _last(text: str, markers: Sequence[str]) -> int:
    return max(text.rfind(marker) for marker in markers)


def _message_node(name: str, state: State) -> Node:
    if isinstance(state, Said):
        kind = TextKind.REASONING if state.is_reasoning else TextKind.ANSWER
        return Node(name, state.on, kind, follows_header=True)
    on = {**state.on, state.marker: name} if isinstance(state, Fork) else state.on
    return Node(name, on, state=state)


def _with_pattern(node: Node, tokens: set[str]) -> Node:
    texts = tuple(sorted(set(node.on) - tokens, key=lambda text: (-len(text), text)))
    pattern = re.compile("|".join(map(re.escape, texts))) if texts else None
    return replace(node, texts=texts, pattern=pattern)
