"""As much of PromQL as is needed to check the names in a query."""

import re
from collections.abc import Iterator, Mapping

_FUNCTIONS = {"deriv", "histogram_quantile", "increase", "max", "rate", "sum"}
_WORDS = {"and", "by", "on", "or", "unless"}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<selector>\{[^{}]*\})
    | (?P<range>\[(?:\$__rate_interval|\d+[smhd])\])
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<sign>==|!=|>=|<=|[-+*/<>(),])
    )""",
    re.VERBOSE,
)
_MATCHER = re.compile(r'\s*([a-z_]+)\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*(?:,|$)')
_OF_ALL = {"instance", "job"}
"""Labels that Prometheus adds."""


def errors(query: str, labels_of: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What is wrong with the names in `query`, if series have the labels that `labels_of` says."""
    depth = at = 0
    metric, grouping, used = "", False, set[str]()
    groups: set[str] = set()
    while at < len(query.rstrip()):
        token = _TOKEN.match(query, at)
        if token is None:
            yield f"not understood: {query[at : at + 30]!r}"
            return
        at = token.end()
        kind, text = token.lastgroup, token[0].strip()
        depth += (text == "(") - (text == ")")
        if depth < 0:
            yield "a parenthesis too many"
        if grouping:
            grouping = text != ")"
            if kind == "name":
                groups.add(text)
        elif kind == "selector":
            matched = _MATCHER.findall(text[1:-1])
            if _MATCHER.sub("", text[1:-1]).strip():
                yield f"not a selector: {text}"
            for label in sorted(set(matched) - labels_of.get(metric, frozenset()) - _OF_ALL):
                yield f"{metric} has no label {label}"
        elif kind == "name":
            grouping = text in ("by", "on")
            if text in labels_of:
                metric = text
                used.add(text)
            elif text not in _FUNCTIONS | _WORDS:
                yield f"unknown name {text}"
    if depth:
        yield "a parenthesis is not closed"
    if not used:
        yield "no metric"
    known = frozenset[str]().union(*(labels_of[name] for name in used))
    for label in sorted(groups - known - _OF_ALL):
        yield f"grouped by {label}, which no metric has"
