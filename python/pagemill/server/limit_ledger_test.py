"""Accounts of keys, also those that processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagemill.server.limits.ledger import Ledger


def test_processes_share_accounts(tmp_path: Path) -> None:
    path = str(tmp_path / "limits")
    Ledger.create(path)
    first, second = Ledger(path, process=0), Ledger(path, process=1)
    with first.account("web") as account:
        account.requests, account.tokens, account.updated = 1.5, 20.0, 3.0
        account.running[first.process] += 2
    with second.account("web") as account:
        assert (account.requests, account.tokens, account.updated) == (1.5, 20.0, 3.0)
        account.running[second.process] += 1
        assert sum(account.running) == 3
    with second.account("batch") as account:
        assert sum(account.running) == 0


def test_a_process_that_was_killed_runs_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "limits")
    Ledger.create(path)
    first, second = Ledger(path, process=0), Ledger(path, process=1)
    for ledger in (first, second):
        with ledger.account("web") as account:
            account.tokens += 5.0
            account.running[ledger.process] += 1
    Ledger(path, process=1)  # started again
    with first.account("web") as account:
        assert account.running[:2] == [1, 0] and account.tokens == 10.0


def test_an_exception_changes_nothing() -> None:
    ledger = Ledger()
    with pytest.raises(RuntimeError), ledger.account("web") as account:
        account.requests = 1.0
        raise RuntimeError
    with ledger.account("web") as account:
        assert account.requests == 0.0


def test_names_beyond_the_room_take_that_of_the_one_unused_for_longest() -> None:
    ledger = Ledger(slots=3)
    for number, name in enumerate(("a", "b", "c")):
        with ledger.account(name) as account:
            account.requests, account.updated = 1.0, float(number)
            account.running[0] = int(name == "a")  # in use, so it stays
    with ledger.account("d") as account:
        assert account.requests == 0.0
        account.requests, account.updated = 1.0, 3.0
    for name in ("a", "c", "d"):
        with ledger.account(name) as account:
            assert account.requests == 1.0, name
    with ledger.account("b") as account:
        assert account.requests == 0.0
