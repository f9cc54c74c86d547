"""The rules of a grammar as they are written."""

from __future__ import annotations

from pagemill.structured.json_schema.errors import Budget, TooMuchError

_MAX_RULES = 60_000
"""llguidance has 65,535 symbols, of which a rule takes some."""
BLANKS = r"[ \t\r\n]{1,8}"
"""White space between two tokens of JSON: a model that likes line breaks would write no end."""
IMPOSSIBLE = r"/[^\x{0}-\x{10ffff}]/"
"""What matches nothing."""


class Rules:
    """Collects rules, each once, and names them."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._names: dict[str, str] = {}
        self._num_new = 0
        self.lines: list[str] = []

    def rule(self, body: str) -> str:
        """A rule: its name."""
        return self._named(body, "r")

    def terminal(self, body: str) -> str:
        """A terminal: its name."""
        return self._named(body, "T")

    def new_name(self) -> str:
        """The name of a rule that is added later."""
        self._num_new += 1
        return f"s{self._num_new}"

    def add(self, line: str) -> None:
        """A line of the grammar."""
        self._budget.spend()
        if len(self.lines) == _MAX_RULES:
            raise TooMuchError("its grammar has too many rules")
        self.lines.append(line)

    def _named(self, body: str, kind: str) -> str:
        found = self._names.get(body)
        if found is None:
            found = self._names[body] = f"{kind}{len(self.lines)}"
            self.add(f"{found}: {body}")
        return found
