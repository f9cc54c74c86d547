"""Templates that loop, swell and crash end their own process at most, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.template_process import MAX_PROCESSES, MAX_REQUEST_BYTES, TemplateProcesses
from pagemill.render.template_wire import MAX_TEMPLATE_CHARS, RenderRequest, Setup

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLE = "{% set n = namespace(s='xx') %}{% for i in range(60) %}{% set n.s = DO %}{% endfor %}"
# `big` is a variable, so that nothing is computed when the template is compiled.
BOMBS = {
    "loop": LOOP,
    "tilde": DOUBLE.replace("DO", "n.s ~ n.s"),
    "replace": DOUBLE.replace("DO", "n.s | replace('x', 'xx')"),
    "slice": "{{ range(99999) | slice(big) | list }}",
    "lipsum": "{{ lipsum(n=big) }}",
    "power": "{{ big ** big }}",
    "indent": r"{{ ('a\n' * 10 ** 5) | indent(big, true) }}",
    "sum": "{{ [[1] * big, [1] * big] | sum(start=[]) | length }}",
    "times": "{{ ('x' * big) | length }}",
    "percent": "{{ ('%' ~ big ~ 'd') % 1 }}",
    "format": "{{ ('{:>' ~ big ~ '}').format(1) }}",
    "center": "{{ 'x' | center(big) }}",
    "ljust": "{{ 'x'.ljust(big) }}",
    "batch": "{{ [1] | batch(big, 0) | list }}",
    "tojson": "{{ [[[1]]] | tojson(indent=big) }}",
    "recursion": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "output": "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
}
CASES = "".join(
    f"{{% if messages[0].content == '{name}' %}}{bomb}{{% endif %}}" for name, bomb in BOMBS.items()
)
ECHO = "<|im_start|>{{ messages[0].content }}"


def _request(content: str = "hi", **change: Any) -> RenderRequest:
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": content}],
        "tools": None,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "variables": {"big": 10**11},
        "trust_control_tokens": False,
    }
    return RenderRequest(**{**fields, **change})


def _children() -> set[int]:
    lists = Path("/proc/self/task").glob("*/children")
    return {int(child) for path in lists for child in path.read_text(encoding="ascii").split()}


@pytest.fixture(name="processes")
def _processes() -> Iterator[TemplateProcesses]:
    processes = TemplateProcesses()
    yield processes
    processes.close()


def _compile(processes: TemplateProcesses, source: str, max_cpu_s: float = 0.2) -> None:
    processes.compile(Setup({"default": source}, {}, ["<|im_start|>", "<|im_end|>"], max_cpu_s))


def test_every_bomb_fails_alone(processes: TemplateProcesses) -> None:
    _compile(processes, CASES + ECHO)
    refused: dict[str, str] = {}
    for name in BOMBS:
        with pytest.raises(RenderError) as error:
            processes.render(_request(name))
        refused[name] = error.value.message
        assert error.value.param == "messages"
        assert processes.render(_request()).text == "<|im_start|>hi"
    by_time = {name for name, message in refused.items() if "processor time" in message}
    assert {"loop", "tilde", "power"} <= by_time
    assert "too much memory" in refused["times"]
    assert "maximum recursion depth" in refused["recursion"]
    assert "longer than 16777216 characters" in refused["output"]


@pytest.mark.parametrize("bomb", ["{{ 'x' * 10 ** 11 }}", "{{ (10 ** 9) ** (10 ** 9) }}"])
def test_constants_are_folded_within_the_limits(processes: TemplateProcesses, bomb: str) -> None:
    # Jinja computes constants when it compiles. One that it cannot compute stays in the template.
    with pytest.raises(RenderError, match="too much"):
        _compile(processes, bomb)
        processes.render(_request())


def test_what_is_no_template(processes: TemplateProcesses) -> None:
    with pytest.raises(RenderError, match="not valid Jinja: line 1"):
        _compile(processes, "{% nothing %}")
    with pytest.raises(RenderError, match="half a surrogate pair"):
        _compile(processes, "\ud800")
    with pytest.raises(RenderError, match=f"at most {MAX_TEMPLATE_CHARS}"):
        _compile(processes, "x" * (MAX_TEMPLATE_CHARS + 1))


def test_others_render_while_bombs_run(processes: TemplateProcesses) -> None:
    _compile(processes, CASES + ECHO, 0.5)
    with ThreadPoolExecutor(MAX_PROCESSES - 1) as threads:
        bombs = [
            threads.submit(processes.render, _request("loop")) for _ in range(MAX_PROCESSES - 1)
        ]
        time.sleep(0.2)
        assert processes.render(_request()).text == "<|im_start|>hi"
        assert not all(bomb.done() for bomb in bombs)
        assert all(isinstance(bomb.exception(), RenderError) for bomb in bombs)
    assert processes.render(_request()).text == "<|im_start|>hi"
    assert len(_children()) == 1


def test_many_threads(processes: TemplateProcesses) -> None:
    _compile(processes, ECHO, 2.0)

    def one(n: int) -> bool:
        return processes.render(_request(f"hi {n}")).text == f"<|im_start|>hi {n}"

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(400)))


def test_a_killed_process_is_replaced(processes: TemplateProcesses) -> None:
    before = _children()
    _compile(processes, ECHO)
    for _ in range(2):
        for child in _children():
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)  # until it is seen to have ended
        assert processes.render(_request()).text == "<|im_start|>hi"
    processes.close()
    assert not _children() & before
    assert processes.render(_request()).text == "<|im_start|>hi"


def test_what_cannot_cross(processes: TemplateProcesses) -> None:
    _compile(processes, ECHO, 2.0)
    for content in ("\ud800", object(), 2**70, "x" * MAX_REQUEST_BYTES):
        with pytest.raises(RenderError):
            processes.render(_request(content))  # type: ignore[arg-type]
    large = "x" * 2**23
    assert processes.render(_request(large)).text == "<|im_start|>" + large


def test_it_imports_little_and_ends_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import pagemill.render.template_worker\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'pagemill._native'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from pagemill.render.template_process import TemplateProcesses\n"
        "from pagemill.render.template_wire import Setup\n"
        "processes = TemplateProcesses()\n"
        "processes.compile(Setup({'default': 'x'}, {}, []))\n"
        "print(processes._idle[0].pid, flush=True)\n"
        "import os\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    status = Path(f"/proc/{int(parent.stdout)}")
    deadline = time.monotonic() + 5
    while status.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not status.exists() or "Z" in (status / "stat").read_text().split()[2]
