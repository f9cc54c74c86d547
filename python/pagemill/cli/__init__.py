"""The command line: `pagemill serve`, `pagemill chat`, ..."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; see `pagemill.cli.program.run`."""
    from pagemill.cli.program import run

    return run(argv)
