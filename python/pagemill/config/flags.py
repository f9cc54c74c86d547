"""Command-line flags of configuration trees.

    parser = FlagParser(prog="pagemill serve", description="...")
    parser.add_config(ServeConfig)
    config = parser.read(ServeConfig, parser.parse_args(argv))

`--max-model-len` and `--max_model_len` are the same flag, `=` or a space precedes its value, and
`--config FILE` reads a YAML file that flags override. Options whose value is a JSON object also
take its parts one by one; see `json_parts`.
"""

import argparse
import functools
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from pagemill.config.fields import (
    ConfigError,
    Leaf,
    Range,
    build,
    leaves,
    parse_value,
    unknown_option,
)
from pagemill.config.json_parts import JsonPart, parse_part, split_flag, with_parts
from pagemill.config.quantities import format_bytes
from pagemill.config.yaml_file import read_yaml

T = TypeVar("T")

_OPTION = re.compile(r"-[^0-9.]")
_CLUSTER = re.compile(r"-[a-z]{2,3}")
_LONGEST_CHOICES = 80
"""Characters; the text of an option with longer ones lists them."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help with room for the flags' names, at most 100 columns wide."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size((100, 24)).columns
        super().__init__(prog, max_help_position=28, width=min(columns, 100))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        # Line by line: a description is one long line, examples are several short ones.
        lines = text.splitlines()
        return "\n".join(textwrap.fill(line, width, subsequent_indent=indent) for line in lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # argparse's own would break a flag at its hyphen.
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


class FlagParser(argparse.ArgumentParser):
    """An argument parser for configuration trees, which suggests the intended flag for a typo."""

    def __init__(self, prog: str, description: str, examples: str = "") -> None:
        """Creates a parser without options; `examples` has one example per line."""
        super().__init__(
            prog=prog,
            description=description,
            epilog="\n".join(["examples:", *(f"  {line}" for line in examples.splitlines())])
            if examples
            else None,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        self._in_intermixed = False
        self._config_flag_added = False
        self._json_flags: set[str] = set()
        self._list_flags: set[str] = set()
        self.set_defaults(json_parts=[])

    def add_config(self, cls: type[Any]) -> None:
        """Adds the options of the tree `cls`, one help group for each dataclass, and `--config`."""
        groups: dict[type[Any], Any] = {}
        for leaf in leaves(cls):
            if leaf.owner not in groups:
                title, _, what = (inspect.getdoc(leaf.owner) or "").splitlines()[0].partition(": ")
                what = what[:1].upper() + what[1:]
                groups[leaf.owner] = self.add_argument_group(title, what)
            _add_leaf(groups[leaf.owner], leaf)
            if leaf.is_json:
                self._json_flags.add(leaf.flag)
            if leaf.is_list:
                self._list_flags.add(leaf.flag)
        if not self._config_flag_added:
            self.add_argument(
                "--config",
                metavar="FILE",
                help="YAML file with any of these options by name; flags win over it",
            )
            self._config_flag_added = True

    def refuse(self, flags: Sequence[str], reason: str) -> None:
        """Flags of other programs that would be taken for typos: each is an error that says why."""
        for flag in flags:
            self.add_argument(
                flag, nargs="?", action=_Refused, const=reason, help=argparse.SUPPRESS
            )

    def format_usage(self) -> str:
        """A usage line that names the positionals; the flags are listed below it anyway."""
        words = [self.prog]
        for action in self._actions:
            if not action.option_strings and action.help is not argparse.SUPPRESS:
                name = self._get_formatter()._metavar_formatter(action, action.dest)(1)[0]
                words.append(name if action.required else f"[{name}]")
        return f"usage: {' '.join(words)} [options]\n"

    def format_help(self) -> str:
        """As argparse's, with the short usage line."""
        if self.usage is None and self._subparsers is None:
            self.usage = self.format_usage().removeprefix("usage: ").strip().replace("%", "%%")
        return super().format_help()

    def read(self, cls: type[T], args: argparse.Namespace, known: Sequence[type[Any]] = ()) -> T:
        """Returns the tree `cls` from parsed flags over the `--config` file over defaults.

        Args:
          cls: the tree to build.
          args: what `parse_args` returned.
          known: further trees of this command, whose names the file may also contain.

        Raises:
          ConfigError: the file has an unknown name, or a value is invalid.
        """
        own = {leaf.name: leaf for leaf in leaves(cls)}
        allowed = set(own).union(*({leaf.name for leaf in leaves(other)} for other in known))
        values: dict[str, Any] = {}
        if args.config is not None:
            for key, value in read_yaml(args.config).items():
                name = key.replace("-", "_")
                if name not in allowed:
                    hint = unknown_option(name, sorted(allowed))
                    raise ConfigError(f"--config {args.config}: unknown option {key!r}{hint}")
                if name in values:
                    raise ConfigError(f"--config {args.config}: {key!r} is given twice")
                values[name] = value
        values.update({k: v for k, v in vars(args).items() if k in own})
        given: list[JsonPart] = args.json_parts
        for name, leaf in own.items():
            if parts := [part for part in given if part.flag.dest == name]:
                whole = parse_value(leaf, values.get(name, leaf.default))
                values[name] = with_parts(whole, parts)
        return build(cls, {k: v for k, v in values.items() if k in own})

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse's, with underscores in flags, and positionals anywhere among the flags."""
        if args is not None and not self._in_intermixed:
            args = [self._with_dashes(arg) for arg in args]
            for arg in args:
                self._add_part_flag(arg)
        if self._in_intermixed or args is None or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        # argparse alone would match an optional positional before the first flag, with nothing.
        self._in_intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._in_intermixed = False

    def parse_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """As argparse's, but an error names all unknown flags and what to do about each."""
        given = sys.argv[1:] if args is None else list(args)
        # argparse would read `-hf` as `-h` and a value. No flag of ours is like it.
        taken = [word for word in given if not _CLUSTER.fullmatch(word)]
        found, rest = self.parse_known_args(taken, namespace)
        if rest or len(taken) < len(given):
            unknown = [word for word in given if word in rest or _CLUSTER.fullmatch(word)]
            self._refuse_unknown(given, unknown)
        return found

    def _refuse_unknown(self, given: list[str], rest: list[str]) -> NoReturn:
        """Ends with an error about `rest`, what of the arguments `given` was not understood."""
        flags = list(self._option_string_actions)
        if options := [word.split("=")[0] for word in rest if _OPTION.match(word)]:
            about = (f"unknown option {name!r}{unknown_option(name, flags)}" for name in options)
            self.error(f"\n{self.prog}: ".join(about))
        self.error(f"unknown argument {rest[0]!r}{self._about_argument(given, rest[0])}")

    def error(self, message: str) -> NoReturn:
        """Prints `message` and a hint to --help, and exits with status 2."""
        self.exit(2, f"{self.prog}: {message}\nTry `{self.prog} --help`.\n")

    def _about_argument(self, given: list[str], argument: str) -> str:
        """What follows "unknown argument 'x'"."""
        before = given[: given.index(argument)] if argument in given else []
        flag = next((word for word in reversed(before) if _OPTION.match(word)), "")
        action = self._option_string_actions.get(flag)
        if isinstance(action, _OnOff) and before[-1] == flag:
            return f"; {flag} takes no value, and {action.option_strings[-1]} turns it off"
        if flag in self._list_flags:
            return f"; give {flag} again for each further value"
        texts = [name for name in ("-q", "-p") if name in self._option_string_actions]
        return f"; text goes to {texts[0]}, in quotes" if texts else ""

    def _with_dashes(self, arg: str) -> str:
        if not arg.startswith("--") or "_" not in arg:
            return arg
        name, equals, value = arg.partition("=")
        dashed = name.replace("_", "-")
        return dashed + equals + value if dashed in self._option_string_actions else arg

    def _add_part_flag(self, arg: str) -> None:
        """Adds the flag of a part of a JSON option, if `arg` is one."""
        part = split_flag(arg)
        known = self._option_string_actions
        if part is None or part.flag in known or part.option not in known:
            return
        if part.option not in self._json_flags:
            self.error(f"{part.flag}: the value of {part.option} is not JSON and has no parts")
        if "" in part.path:
            self.error(f"{part.flag}: the name of a part is empty")
        self.add_argument(
            part.flag,
            action="append",
            dest="json_parts",
            type=functools.partial(parse_part, part),
            metavar="VALUE",
            help=argparse.SUPPRESS,
        )


def describe(leaf: Leaf) -> str:
    """Returns the help text of one option, with its default."""
    text = leaf.spec.help.rstrip(".")
    default = leaf.default
    if leaf.is_json:
        text += f". One part: {leaf.flag}.NAME VALUE"
    if leaf.base_type is bool:
        return f"{text} (default: {'on' if default else 'off'})"
    if default in (None, "", (), {}):
        return text
    if leaf.spec.unit == "bytes":
        shown = format_bytes(default)
    elif isinstance(default, (int, float)):
        shown = f"{default:,g}" if isinstance(default, float) else str(default)
        shown += f" {leaf.spec.unit}" if leaf.spec.unit and default else ""
    else:
        shown = " ".join(default) if leaf.is_list else str(default)
    return f"{text} (default: {shown})"


def _add_leaf(group: Any, leaf: Leaf) -> None:
    # A percent sign in help is argparse's formatting character.
    text = describe(leaf).replace("%", "%%")
    names = [f"-{leaf.spec.short}", leaf.flag] if leaf.spec.short else [leaf.flag]
    shared: dict[str, Any] = {"dest": leaf.name, "default": argparse.SUPPRESS, "help": text}
    if leaf.base_type is bool:
        group.add_argument(*names, action=_OnOff, nargs=0, **shared)
    elif leaf.is_list:
        group.add_argument(*names, action="append", metavar=_metavar(leaf), **shared)
    elif leaf.spec.kind == "positional":
        group.add_argument(
            leaf.name, nargs="?", metavar=_metavar(leaf), default=argparse.SUPPRESS, help=text
        )
        group.add_argument(*names, **{**shared, "help": argparse.SUPPRESS})
    else:
        group.add_argument(*names, metavar=_metavar(leaf), **shared)


def _metavar(leaf: Leaf) -> str:
    if isinstance(leaf.spec.allowed, tuple):
        choices = "|".join(leaf.spec.allowed)
        return choices if len(choices) <= _LONGEST_CHOICES else leaf.name.upper()
    if leaf.spec.kind == "positional":
        return leaf.name.upper()
    if leaf.spec.unit:
        return leaf.spec.unit.upper() if leaf.spec.unit != "s" else "SECONDS"
    if isinstance(leaf.spec.allowed, Range):
        return "N" if leaf.base_type is int else "X"
    return "JSON" if leaf.base_type is not str and not leaf.is_list else "TEXT"


class _OnOff(argparse.BooleanOptionalAction):
    """`--x` and `--no-x`, with our own text about the default."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, nargs: int, default: Any, help: str
    ) -> None:
        del nargs  # always 0
        super().__init__(option_strings=list(option_strings), dest=dest, default=default)
        self.help = help


class _Refused(argparse.Action):
    """An error, whose text is `const`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        del namespace, values
        parser.error(f"{option_string}: {self.const}")
