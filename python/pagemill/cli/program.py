"""From `sys.argv` to an exit status: 0 done, 1 it could not be done, 2 it was asked wrongly."""

import sys
from collections.abc import Sequence

import pagemill
from pagemill.cli.table import COMMANDS, Command, find, not_found

_USAGE = """\
usage: pagemill COMMAND [options]

An inference engine and OpenAI-compatible server for language models.

{commands}

`pagemill COMMAND --help` lists a command's options. Every option can also stand
in a YAML file that --config names. Numbers may be written as 4k (4,000),
4K (4,096) or 2GiB, and parts of JSON values as --hf-overrides.NAME VALUE.

  pagemill serve                              the default model on port 8000
  pagemill serve model.gguf --port 9000       a file of your own
  pagemill chat -q "Why is the sky blue?"     one answer, without a server
  pagemill plan model.gguf                    will it fit?
"""


def run(argv: Sequence[str] | None) -> int:
    """Runs the command that `argv` (the process's arguments where None) begins with.

    Returns:
      The exit status. Failures that a person can do something about are one sentence on standard
      error, without a traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage(), end="")
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version", "version"):
        print(f"pagemill {pagemill.__version__}")
        return 0
    if arguments[0] == "bench" and arguments[1:] in ([], ["-h"], ["--help"]):
        print(_usage("bench"), end="")
        return 0 if arguments[1:] else 2
    command = find(arguments)
    if command is None:
        print(f"pagemill: {not_found(arguments)}", file=sys.stderr)
        return 2
    return _guarded(command, arguments[len(command.words) :])


def _guarded(command: Command, rest: list[str]) -> int:
    from pagemill.config.fields import ConfigError

    name = "pagemill " + " ".join(command.words)
    parser = command.parser()
    args = parser.parse_args(rest)
    try:
        return command.run(parser, args)
    except ConfigError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `pagemill generate | head`
        sys.stderr.close()
        return 1
    except (ValueError, OSError, ImportError) as error:
        # Weights, templates, files and connections: each has a message for people.
        print(f"{name}: {_sentence(error)}", file=sys.stderr)
        return 1
    except Exception as error:
        if type(error).__name__ not in ("EngineError", "StatusError"):
            raise
        # The engine's refusals. Their types live in packages that most commands never import.
        from pagemill._native import StatusError
        from pagemill.engine.outputs import EngineError

        if not isinstance(error, EngineError | StatusError):
            raise
        print(f"{name}: {error.message}", file=sys.stderr)
        return 1


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _usage(group: str = "") -> str:
    rows = [row for row in COMMANDS if not group or row.words[0] == group]
    width = max(len(" ".join(row.words)) for row in rows)
    lines = [f"  {' '.join(row.words):<{width}}  {row.summary}" for row in rows]
    if group:
        return f"usage: pagemill {group} COMMAND [options]\n\n" + "\n".join(lines) + "\n"
    return _USAGE.format(commands="\n".join(lines))
