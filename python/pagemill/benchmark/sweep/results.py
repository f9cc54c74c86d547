"""The results file of a sweep: a line of JSON for each run, so that a sweep can be continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pagemill import __version__
from pagemill.benchmark.sweep.grid import Run
from pagemill.config import ConfigError

_MAX_FILE_BYTES = 2**28
_BEGIN = b'{"server": '


class Results:
    """The runs that a file holds, and those that are added to it."""

    def __init__(self, path: str) -> None:
        """Reads the file if it exists. The unfinished last line of a sweep that was killed is cut
        off.

        Raises:
          ConfigError: the file holds something else.
          OSError: it cannot be read or written.
        """
        self._path = Path(path)
        self._reports: dict[str, dict[str, Any]] = {}
        with self._path.open("a+b") as file:  # a folder without write access is noticed here
            size = file.tell()
            if size > _MAX_FILE_BYTES:
                raise ConfigError(f"--output: {path} is larger than {_MAX_FILE_BYTES >> 20} MiB")
            file.seek(0)
            *lines, rest = file.read().split(b"\n")
            for number, line in enumerate(lines, start=1):
                run, report = self._parsed(line, number)
                self._reports[run.key] = report
            if rest:
                if not (rest.startswith(_BEGIN) or _BEGIN.startswith(rest)):
                    raise self._foreign(len(lines) + 1)
                file.truncate(size - len(rest))

    def __contains__(self, run: Run) -> bool:
        return run.key in self._reports

    def of(self, runs: Iterator[Run]) -> list[dict[str, Any]]:
        """Returns the reports of those of `runs` that were measured."""
        return [self._reports[run.key] for run in runs if run in self]

    def add(self, run: Run, report: dict[str, Any]) -> None:
        """Appends a run's report.

        Raises:
          OSError: the file cannot be written.
        """
        record = {
            "server": run.server,
            "load": run.load,
            "repeat": run.repeat,
            "version": __version__,
            "report": report,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self._reports[run.key] = report

    def _parsed(self, line: bytes, number: int) -> tuple[Run, dict[str, Any]]:
        try:
            record = json.loads(line)
            run = Run(record["server"], record["load"], record["repeat"])
            report = record["report"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._foreign(number) from None
        if not isinstance(report, dict):
            raise self._foreign(number)
        return run, cast(dict[str, Any], report)

    def _foreign(self, line: int) -> ConfigError:
        return ConfigError(
            f"--output: line {line} of {self._path} is not a result of `pagemill bench sweep`; name"
            " another file"
        )
