"""Formats of strings as patterns. Each admits the usual texts of its format, and no others.

What they leave out: leap seconds, internationalized names beyond letters and digits, comments and
quoted parts of mail addresses. A format that is not in the table is an annotation.
"""

from __future__ import annotations

_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_DATE = rf"(?!0000){_DAY}"
_SPLIT = r"(?:\.[0-9]{1,6})?"


def _leap_seconds() -> str:
    """The last second of a day of UTC, with an offset of whole, half or three quarter hours."""
    offsets = ((sign, h * 60 + m) for sign in (1, -1) for h in range(24) for m in (0, 30, 45))
    found = [f"23:59:60{_SPLIT}[Zz]"]
    for sign, offset in offsets:
        local = (23 * 60 + 59 + sign * offset) % (24 * 60)
        zone = f"[{'+' if sign > 0 else '-'}]{offset // 60:02}:{offset % 60:02}"
        found.append(f"{local // 60:02}:{local % 60:02}:60{_SPLIT}{zone}")
    return "|".join(found)


_TIME = (
    rf"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_SPLIT}"
    rf"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|{_leap_seconds()})"
)
_DATE_TIME = rf"{_DATE}[Tt]{_TIME}"
_DURATION = (
    r"P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T{0})?|T{0})"
).replace("{0}", r"(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)")

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"[ !#-\[\]-~]*"'
_IDN_LABEL = "(?:{})".format(
    "|".join(
        (
            r"[a-z0-9](?:-?[a-z0-9\u00e0-\u00f6\u00f8-\u00ff]){0,20}",
            r"[\u00df-\u00f6\u00f8-\u00ff\u03b1-\u03c9\u0430-\u044f\u0f0b]{1,20}",
            r"[\u3007\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5]{1,20}",
            r"[\uac00-\ud7a3]{1,20}",
            r"[\u00df\u03c2\u0f0b\u3007]{1,4}",
            r"[\u0621-\u063a\u0641-\u064a\u06fd\u06fe]{1,20}",
            # The rules of RFC 5892, appendix A, for characters that need others beside them.
            r"l\u00b7l",
            r"[\u03b1-\u03c9]\u0375[\u03b1-\u03c9]",
            r"[\u05d0-\u05ea][\u05f3\u05f4][\u05d0-\u05ea]",
            r"\u30fb[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5]",
            r"[\u0628-\u063a](?:[\u0660-\u0669]|[\u06f0-\u06f9])[\u0628-\u063a]",
            r"[\u06f0-\u06f9]0",
            r"[\u0915-\u0939]\u094d[\u200c\u200d][\u0915-\u0939]",
            r"\u0628\u064a\u200c\u0628\u064a",
        )
    )
)
_IDN_DOT = r"[.\u3002\uff0e\uff61]"

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H = "[0-9A-Fa-f]{1,4}"
_TAIL = rf"(?:{_H}:{_H}|{_IPV4})"
_IPV6 = "(?:{})".format(
    "|".join(
        (
            rf"(?:{_H}:){{6}}{_TAIL}",
            rf"::(?:{_H}:){{5}}{_TAIL}",
            rf"(?:{_H})?::(?:{_H}:){{4}}{_TAIL}",
            rf"(?:(?:{_H}:){{0,1}}{_H})?::(?:{_H}:){{3}}{_TAIL}",
            rf"(?:(?:{_H}:){{0,2}}{_H})?::(?:{_H}:){{2}}{_TAIL}",
            rf"(?:(?:{_H}:){{0,3}}{_H})?::{_H}:{_TAIL}",
            rf"(?:(?:{_H}:){{0,4}}{_H})?::{_TAIL}",
            rf"(?:(?:{_H}:){{0,5}}{_H})?::{_H}",
            rf"(?:(?:{_H}:){{0,6}}{_H})?::",
        )
    )
)


def _uri(unreserved: str, *, is_relative: bool) -> str:
    """RFC 3986, section 3: `scheme:` and what may follow, or a reference without it."""
    encoded = "%[0-9A-Fa-f]{2}"
    char = f"(?:[{unreserved}!$&'()*+,;=:@]|{encoded})"
    name = f"(?:[{unreserved}!$&'()*+,;=]|{encoded})*"
    user = f"(?:(?:[{unreserved}!$&'()*+,;=:]|{encoded})*@)?"
    authority = rf"{user}(?:\[{_IPV6}\]|{name})(?::[0-9]*)?"
    path = f"(?:/{char}*)*"
    rootless = f"{char}+{path}"
    rest = rf"(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    uri = f"[A-Za-z][A-Za-z0-9+.-]*:(?://{authority}{path}|/(?:{rootless})?|{rootless}|){rest}"
    if not is_relative:
        return f"^(?:{uri})$"
    no_colon = f"(?:[{unreserved}!$&'()*+,;=@]|{encoded})+{path}"
    relative = f"(?://{authority}{path}|/(?:{rootless})?|{no_colon}|){rest}"
    return f"^(?:{uri}|{relative})$"


_ASCII = r"A-Za-z0-9._~\-"
_WIDE = r"A-Za-z0-9._~\-\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
_POINTER = r"(?:/(?:[^/~]|~[01])*)*"
_VARIABLE = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*"
_VARIABLES = rf"{_VARIABLE}(?::[1-9][0-9]{{0,3}}|\*)?"

_PART = (
    r"(?:[^\\^$.|?*+()\[\]{}\s]|\\[dDwWsS^$.|?*+()\[\]{}\\/-]|\."
    r"|\[\^?(?:[A-Za-z0-9_.,:;!@#%=]|a-z|A-Z|0-9|\\[dws.\\/-])+\])"
)
_PARTS = rf"(?:{_PART}(?:[*+?]\??)?)*"
_GROUP = rf"\((?:\?:)?{_PARTS}(?:\|{_PARTS})*\)"
_REGEX = rf"(?:(?:{_PART}|{_GROUP})(?:[*+?]\??)?)*"

FORMATS = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE_TIME}$",
    "duration": f"^{_DURATION}$",
    "email": (
        rf"^(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
        rf"@(?:{_LABEL}(?:\.{_LABEL})*|\[(?:{_IPV4}|IPv6:{_IPV6})\])$"
    ),
    "hostname": rf"^(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*$",
    "idn-email": rf"^[^@\s\x00-\x20\"(),:;<>\[\\\]]+@{_IDN_LABEL}(?:\.{_IDN_LABEL})*$",
    "idn-hostname": rf"^{_IDN_LABEL}(?:{_IDN_DOT}{_IDN_LABEL}){{0,9}}$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^{_IPV6}$",
    "iri": _uri(_WIDE, is_relative=False),
    "iri-reference": _uri(_WIDE, is_relative=True),
    "json-pointer": f"^{_POINTER}$",
    "regex": rf"^\^?{_REGEX}(?:\|{_REGEX})*\$?$",
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "time": f"^{_TIME}$",
    "uri": _uri(_ASCII, is_relative=False),
    "uri-reference": _uri(_ASCII, is_relative=True),
    "uri-template": (
        r"^(?:[!#$&(-;=?-\[\]_a-z~\u00a0-\ud7ff]|%[0-9A-Fa-f]{2}"
        rf"|\{{[+#./;?&]?{_VARIABLES}(?:,{_VARIABLES})*\}})*$"
    ),
    "uuid": "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
}
"""The pattern of each format."""
