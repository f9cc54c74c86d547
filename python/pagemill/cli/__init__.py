"""The command line: `pagemill serve`, `pagemill chat`, ..."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; see `pagemill.cli.program.run`."""
    try:
        from pagemill.cli.program import run

        return run(argv)
    except KeyboardInterrupt:  # also of imports, which take as long as many commands
        print(file=sys.stderr)
        return 130
