"""The formats of one model, and the table of states that a choice of it is read by."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pagemill.render.formats.format import (
    ANSWER,
    REASONING,
    ReasoningFormat,
    State,
    Targets,
    ToolFormat,
)
from pagemill.render.formats.table import reasoning_format, tool_format

_BEGIN = "begin"  # of the output: reasoning may come
_WITHIN = "within"  # the same, if the output begins with reasoning
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


class Machine:
    """All states that a choice may be in. `marker_ids`: markers that are tokens, by id."""

    def __init__(
        self,
        reasoning: ReasoningFormat | None,
        tools: ToolFormat | None,
        marker_ids: Mapping[int, str],
    ) -> None:
        """Joins two formats."""
        markers = (reasoning.markers if reasoning else set()) | (tools.markers if tools else set())
        self.marker_ids = {index: m for index, m in marker_ids.items() if m in markers}
        self.has_markers = bool(markers)
        self.may_call = tools is not None
        openers = tools.openers if tools is not None else {}
        starts = {**openers, **tools.starts} if tools is not None else {}
        drops = reasoning.drops if reasoning is not None else ()
        starts |= dict.fromkeys(drops, _ANSWER_BEGIN)
        nodes = [
            Node(ANSWER, {**openers, **dict.fromkeys(drops, ANSWER)}, TextKind.ANSWER),
            Node(_ANSWER_BEGIN, starts, TextKind.ANSWER, otherwise=ANSWER),
        ]
        self._first = _ANSWER_BEGIN
        if reasoning is not None:
            to_reasoning = dict.fromkeys(reasoning.openers, REASONING)
            within = {**openers, **dict.fromkeys(reasoning.closers, _ANSWER_BEGIN)}
            nodes += [
                Node(_BEGIN, {**starts, **to_reasoning}, TextKind.ANSWER, otherwise=ANSWER),
                Node(REASONING, within, TextKind.REASONING),
                Node(
                    *(_WITHIN, {**within, **to_reasoning}, TextKind.REASONING),
                    otherwise=REASONING,
                ),
            ]
            self._first = _WITHIN if reasoning.begins_within else _BEGIN
        if tools is not None:
            nodes += [Node(name, state.on, state=state) for name, state in tools.states.items()]
        tokens = set(self.marker_ids.values())
        self.nodes = {node.name: _with_pattern(node, tokens) for node in nodes}

    def first(self, in_reasoning: bool | None) -> Node:
        """The state in which the output begins; see `ParserOptions`."""
        name = self._first
        if in_reasoning is not None and REASONING in self.nodes:
            name = REASONING if in_reasoning else _BEGIN
        return self.nodes[name]


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one model, and which of their markers are tokens of its vocabulary."""

    reasoning: ReasoningFormat | None = None
    tools: ToolFormat | None = None
    marker_ids: Mapping[int, str] = field(default_factory=dict[int, str])
    _machines: dict[tuple[bool, bool], Machine] = field(
        default_factory=dict[tuple[bool, bool], Machine], repr=False, compare=False
    )

    @classmethod
    def of(
        cls, template: str, names: FormatNames, token_id: Callable[[str], int | None]
    ) -> Formats:
        """The formats that `names` say, or else those that `template` clearly has.

        Args:
          template: source of the chat template.
          names: the operator's.
          token_id: the id of a marker that is a token of its own.

        Raises:
          RenderError: a name is unknown.
        """
        reasoning = reasoning_format(names.reasoning, template)
        tools = tool_format(names.tools, template)
        markers = (reasoning.markers if reasoning else set()) | (tools.markers if tools else set())
        ids = {index: m for m in sorted(markers) if (index := token_id(m)) is not None}
        return cls(reasoning, tools, ids)

    def machine(self, reasoning: bool, tools: bool) -> Machine:
        """The states of a choice of which reasoning, calls of tools or both are read."""
        wanted = (reasoning, tools)
        machine = self._machines.get(wanted)
        if machine is None:
            machine = self._machines[wanted] = Machine(
                self.reasoning if reasoning else None,
                self.tools if tools else None,
                self.marker_ids,
            )
        return machine

    def in_reasoning(self, prompt_end: str) -> bool | None:
        """Whether a prompt that ends like this has opened reasoning (True), or closed it (False);
        None if it did neither."""
        end = prompt_end.rstrip()
        if self.reasoning is None or not end.endswith(tuple(self.reasoning.markers)):
            return None
        return end.endswith(self.reasoning.openers)

    def leaves_in_reasoning(self, content: str) -> bool:
        """True if a message that the output continues is within its reasoning."""
        kind = self.reasoning
        return kind is not None and _last(content, kind.openers) > _last(content, kind.closers)


def _last(text: str, markers: Sequence[str]) -> int:
    return max(text.rfind(marker) for marker in markers)


def _with_pattern(node: Node, tokens: set[str]) -> Node:
    texts = tuple(sorted(set(node.on) - tokens, key=lambda text: (-len(text), text)))
    pattern = re.compile("|".join(map(re.escape, texts))) if texts else None
    return Node(node.name, node.on, node.kind, node.state, node.otherwise, texts, pattern)
