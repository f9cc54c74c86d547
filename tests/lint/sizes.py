"""Sizes of files and functions. The limits are those of the house style.

C++ functions are found by their braces, not parsed: close enough to point a reader at a function
that is too long.
"""

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache

from tests.source_tree import SourceFile

FILE_LINES = 600
FILE_LINES_TO_AIM_AT = 200
FILE_LINES_TO_THINK_TWICE = 400
BUILD_LINES = 300
FUNCTION_LINES = 80
FUNCTION_LINES_TO_AIM_AT = 40
PARAMETERS = 6
IMPORTS = 15

CODE = (".py", ".h", ".cc", ".cu", ".bzl", ".sh")

_CC_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    r"|^\s*#(?:[^\n\\]|\\.|\\\n)*",
    re.DOTALL | re.MULTILINE,
)
_CC_STRUCTURE = re.compile(r"[(){};]")
_ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
_CC_IN_TREE = re.compile(r'^\s*#\s*include\s*"', re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """Where a function is and how large."""

    name: str
    line: int
    lines: int
    parameters: int


def _blank(match: re.Match[str]) -> str:
    """Replaces comments and literals by as many lines, so that their braces do not count."""
    text = match.group()
    if text.lstrip().startswith(("/", "#")):
        return re.sub(r"[^\n]", " ", text)
    return "0" + "\n" * text.count("\n")


def _top_level_commas(text: str) -> int:
    depth = commas = 0
    for char in text:
        depth += {"(": 1, "<": 1, "{": 1, "[": 1, ")": -1, ">": -1, "}": -1, "]": -1}.get(char, 0)
        commas += char == "," and depth == 0
    return commas


def _cc_parameters(head: str) -> int:
    start = head.find("(") + 1
    depth, end = 1, start
    while end < len(head) and depth:
        depth += {"(": 1, ")": -1}.get(head[end], 0)
        end += 1
    inside = head[start : end - 1].strip()
    return _top_level_commas(inside) + 1 if inside else 0


def cc_functions(text: str) -> Iterator[Function]:
    """Yields outermost functions: blocks in a namespace or class that follow a parameter list."""
    text = _ACCESS.sub(lambda match: " " * len(match.group()), _CC_NOISE.sub(_blank, text))
    stack: list[Function | None] = []
    inside = 0  # functions on the stack
    start = 0  # of what leads up to the next brace
    parentheses = 0
    for match in _CC_STRUCTURE.finditer(text):
        at, char = match.start(), match.group()
        parentheses += {"(": 1, ")": -1}.get(char, 0)
        if parentheses > 0:
            continue
        if char == "{":
            head = text[start:at]
            function = None
            if not inside and "(" in head and not _SCOPE.search(head.split("(")[0]):
                first = at - len(head.lstrip())
                name = re.findall(r"[\w~:]+", head.split("(")[0])[-1:] or ["?"]
                line = text.count("\n", 0, first) + 1
                function = Function(name[0], line, 0, _cc_parameters(head))
                inside += 1
            stack.append(function)
        elif char == "}" and stack:
            function = stack.pop()
            if function:
                inside -= 1
                last = text.count("\n", 0, at) + 1
                yield dataclasses.replace(function, lines=last - function.line + 1)
        if char in ";{}":
            start = at + 1


def python_functions(text: str) -> Iterator[Function]:
    """Yields every function; a nested one counts by itself and in the one around it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            names = [arg.arg for arg in arguments.posonlyargs + arguments.args]
            count = len([name for name in names if name not in {"self", "cls"}])
            # Keyword-only arguments are named at the call: they do not get mixed up.
            yield Function(node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1, count)


@cache
def _functions(file: SourceFile) -> tuple[Function, ...]:
    """Cached: both errors and warnings are found in them."""
    if file.path.endswith(".py"):
        return tuple(python_functions(file.text))
    if file.path.endswith((".h", ".cc", ".cu")):
        return tuple(cc_functions(file.text))
    return ()


def in_tree_imports(file: SourceFile) -> int:
    """Counts the files of this tree that the file includes or imports."""
    if file.path.endswith(".py"):
        nodes = ast.walk(ast.parse(file.text))
        modules = {
            node.module
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pagemill")
        }
        return len(modules)
    return len(_CC_IN_TREE.findall(file.text))


def errors(file: SourceFile) -> Iterator[str]:
    """Yields one line per limit that the file breaks."""
    lines = file.text.count("\n")
    limit = BUILD_LINES if file.path.endswith("BUILD.bazel") else FILE_LINES
    if lines > limit:
        yield f"{file.path}: {lines} lines, at most {limit}"
    for function in _functions(file):
        if function.lines > FUNCTION_LINES:
            where = f"{file.path}:{function.line}: {function.name}"
            yield f"{where} has {function.lines} lines, at most {FUNCTION_LINES}"


def warnings(file: SourceFile) -> Iterator[str]:
    """Yields one line per limit that deserves a second thought."""
    lines = file.text.count("\n")
    if FILE_LINES >= lines > FILE_LINES_TO_THINK_TWICE:
        yield f"{file.path}: {lines} lines, aim at {FILE_LINES_TO_AIM_AT}"
    for function in _functions(file):
        where = f"{file.path}:{function.line}: {function.name}"
        if FUNCTION_LINES >= function.lines > FUNCTION_LINES_TO_AIM_AT:
            yield f"{where} has {function.lines} lines, aim at {FUNCTION_LINES_TO_AIM_AT}"
        if function.parameters > PARAMETERS:
            yield f"{where} has {function.parameters} parameters, aim at {PARAMETERS}"
    imports = in_tree_imports(file)
    if imports > IMPORTS:
        yield f"{file.path}: {imports} imports of this tree, aim at {IMPORTS}"
