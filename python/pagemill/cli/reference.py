"""docs/cli.md, from the commands' own parsers: `python -m pagemill.cli.reference > docs/cli.md`."""

import argparse
import sys

from pagemill.cli.table import COMMANDS, Command
from pagemill.config.env import NAMES
from pagemill.config.flags import FlagParser

_HEAD = """\
# The command line

Made from the options' own descriptions by `python -m pagemill.cli.reference`; a test compares.

- `--max-model-len 4K` and `--max_model_len=4K` are the same.
- Every option may stand in a YAML file, `option: value`, that `--config` names; flags win over it.
- An option whose value is JSON also takes its parts one by one: `--hf-overrides.a.b 3` is
  `--hf-overrides '{{"a": {{"b": 3}}}}'`, and `--hf-overrides.a+ 7` appends to a list (`+=7,8` two
  items). A value that is not JSON is a text. Parts complete the option's value from its own flag or
  the file, and override what it has under their names.
- Counts may be written as `4k` (4,000) or `4K` (4,096), sizes as `500MB` or `2GiB`.
- The exit status is 0 when done, 1 when it could not be done, 2 when it was asked wrongly.
- The environment is read for {names} and nothing else, except that a server without a key does not
  start if `VLLM_API_KEY` holds one.
"""


def reference() -> str:
    """Returns the whole document."""
    *names, last = [f"`{name}`" for name in NAMES]
    parts = [_HEAD.format(names=f"{', '.join(names)} and {last}")]
    seen: dict[str, str] = {}
    for command in COMMANDS:
        parts.append(_section(command, command.parser(), seen))
    return "\n".join(parts)


def _section(command: Command, parser: FlagParser, seen: dict[str, str]) -> str:
    name = " ".join(command.words)
    lines = [f"## pagemill {name}", "", parser.description or "", ""]
    usage = parser.format_usage().removeprefix("usage: ").strip()
    lines += [f"    {usage}", ""]
    for group in parser._action_groups:  # pyright: ignore[reportPrivateUsage]
        actions = [a for a in group._group_actions if _is_shown(a)]  # pyright: ignore
        if not actions:
            continue
        title = group.title or ""
        heading = f"**{title}.** {group.description or ''}".strip()
        text = "\n".join(_row(action) for action in actions)
        if seen.get(title) == text:
            lines += [heading, f"As for `pagemill {seen[title + '@']}`.", ""]
            continue
        seen.setdefault(title, text)
        seen.setdefault(title + "@", name)
        lines += [heading, "", "| option | meaning |", "|---|---|", text, ""]
    if parser.epilog:
        _, *examples = parser.epilog.splitlines()
        lines += ["Examples:", "", *[f"    {line.strip()}" for line in examples]]
        lines.append("")
    return "\n".join(lines)


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and "--help" not in action.option_strings


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar}`"
    if action.option_strings and action.metavar and action.nargs != 0:
        names += f" *{str(action.metavar).replace('|', chr(92) + '|')}*"
    text = (action.help or "").replace("%%", "%").replace("|", "\\|")
    return f"| {names} | {text} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
