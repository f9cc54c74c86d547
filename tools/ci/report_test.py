import pathlib

import pytest

from tools.ci import report

LOG = """\
INFO: Elapsed time: 10.0s
//cc/a:slow_test                    PASSED in 61.5s
//cc/a:cached_test         (cached) PASSED in 0.1s
//cc/a:sharded_test                 PASSED in 3.0s
  Stats over 2 runs: max = 3.0s, min = 1.0s, avg = 2.0s, dev = 1.0s
//cuda:kernel_test                  SKIPPED
//python:broken_test                FAILED in 2.0s
  /somewhere/test.log
//python:unbuilt_test               NO STATUS

Executed 3 out of 6 tests
"""

GOOGLETEST = """\
<testsuites><testsuite name="A">
  <testcase name="Ran" status="run" result="completed" classname="A"/>
  <testcase name="Skipped/1" status="run" result="skipped" classname="B/A">
    <skipped message="a.cc:1&#x0A;no such CPU"/>
  </testcase>
</testsuite></testsuites>
"""

PYTEST = """\
<testsuites><testsuite name="pytest">
  <testcase classname="python.a_test" name="test_ran"/>
  <testcase classname="python.a_test" name="test_gpu[x]"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def run(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """A log, logs of tests and an empty list."""
    log, testlogs, listed = tmp_path / "log", tmp_path / "testlogs", tmp_path / "skips.txt"
    log.write_text(LOG)
    listed.write_text("")
    reports = {
        "cc/a/slow_test": GOOGLETEST,
        "cc/a/sharded_test/shard_1_of_2": PYTEST,
        "old_test": PYTEST,  # of an earlier run
    }
    for folder, text in reports.items():
        (testlogs / folder).mkdir(parents=True)
        (testlogs / folder / "test.xml").write_text(text)
    return log, testlogs, listed


def test_results_are_those_of_the_summary() -> None:
    found = [(result.label, result.state, result.seconds) for result in report.results(LOG)]
    assert found == [
        ("//cc/a:slow_test", "PASSED", 61.5),
        ("//cc/a:cached_test", "PASSED", 0.1),
        ("//cc/a:sharded_test", "PASSED", 3.0),
        ("//cuda:kernel_test", "SKIPPED", 0.0),
        ("//python:broken_test", "FAILED", 2.0),
        ("//python:unbuilt_test", "NO STATUS", 0.0),
    ]


def test_skips_that_are_not_listed_fail(
    run: tuple[pathlib.Path, pathlib.Path, pathlib.Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main(*run) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["61.5", "//cc/a:slow_test"]
    assert [line.split(": ", 1)[1] for line in lines if line.startswith("Skipped")] == [
        "//cc/a:slow_test B/A.Skipped/1",
        "//cc/a:sharded_test python.a_test.test_gpu[x]",
        "//cuda:kernel_test",
    ]


def test_listed_skips_pass(run: tuple[pathlib.Path, pathlib.Path, pathlib.Path]) -> None:
    run[2].write_text(
        "# no GPU here\n//cuda:*\n//cc/a:slow_test *.Skipped/*  # CPU\n//cc/a:* *test_gpu[x]\n"
    )
    assert report.main(*run) == 0


def test_a_listed_target_does_not_cover_its_tests(
    run: tuple[pathlib.Path, pathlib.Path, pathlib.Path],
) -> None:
    run[2].write_text("//cuda:*\n//cc/a:*\n")
    assert report.main(*run) == 1
