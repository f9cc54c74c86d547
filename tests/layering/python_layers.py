"""Checks which package of python/pagemill imports which, including function-local imports."""

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache

from tests.source_tree import SourceFile

# Package -> packages it may use directly. Use is transitive: cli may import what server may import.
# docs/architecture.md has the picture.
USES: dict[str, set[str]] = {
    "cli": {"benchmark", "model_host", "router", "server", "simulation"},
    "benchmark": {"engine"},
    "simulation": {"_native", "weights"},
    "model_host": {"router"},  # its front, and how it relays responses
    "router": {"server"},  # the layers of its HTTP side, and how servers render prompts
    "server": {"engine", "render", "structured"},
    "rl": {"weights"},  # what trainers import
    "render": {"inputs", "weights"},  # a tokenizer may lie in a GGUF file
    "engine": {"_native", "inputs", "runner", "structured"},
    "runner": {"_torch_interop", "models"},
    "models": {"inputs", "layers", "quantization"},
    "layers": {"ops"},
    "quantization": {"weights"},
    "weights": {"ops"},
    "ops": {"_native", "tensor"},
    "tensor": set(),
    "inputs": set(),  # what rendering hands to the engine
    "structured": {"_native"},
    "_native": set(),
    "_torch_interop": set(),
    "config": set(),
    "observe": set(),
}

# Imported by everyone; they import nothing in-tree.
_EVERYWHERE = {"config", "observe"}

# The places that put rendering and engine together.
COMPOSERS = {
    "python/pagemill/engine/llm.py",
    "python/pagemill/engine/offline_control.py",
    "python/pagemill/engine/offline_media.py",
    "python/pagemill/engine/offline_pooling.py",
    "python/pagemill/engine/offline_prompts.py",
    "python/pagemill/engine/offline_scores.py",
    "python/pagemill/engine/text_batch.py",
    "python/pagemill/server/generation.py",
    "python/pagemill/server/pipeline.py",
}

# Never imported by `import pagemill` or by serving a natively supported model.
_HEAVY = {"torch", "transformers"}


def _reachable(package: str) -> set[str]:
    reached: set[str] = set()
    frontier = {package}
    while frontier:
        reached |= frontier
        frontier = set().union(*(USES[name] for name in frontier)) - reached
    return reached | _EVERYWHERE


def _module_name(path: str) -> str:
    name = path.removeprefix("python/").removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def _imported(node: ast.AST, file: SourceFile) -> Iterator[str]:
    """Yields the absolute dotted names that an import statement may bind a module for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = _module_name(file.path).split(".")
            if not file.path.endswith("__init__.py"):
                package = package[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _packages(names: Iterable[str]) -> set[str]:
    parts = (name.split(".") for name in names)
    return {part[1] for part in parts if part[0] == "pagemill" and len(part) > 1} & set(USES)


def layer_offences(files: Iterable[SourceFile]) -> list[str]:
    """Returns one line per import that the table forbids. Tests and `__init__` of the root are free
    to compose."""
    found: set[str] = set()
    for file in files:
        if len(file.parts) < 4 or file.path.endswith("_test.py"):
            continue
        package = file.parts[2]
        if package not in USES:
            found.add(f"{file.path}: package {package} is not in the table")
            continue
        nodes = ast.walk(ast.parse(file.text))
        used = _packages(name for node in nodes for name in _imported(node, file))
        allowed = {package} if package in _EVERYWHERE else _reachable(package)
        if file.path in COMPOSERS:
            allowed = allowed | _reachable("render")
        elif package == "server" and {"render", "engine"} <= used:
            found.add(f"{file.path}: only pipeline.py and generation.py compose render and engine")
        found |= {f"{file.path}: {package} may not import {name}" for name in used - allowed}
    return sorted(found)


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _import_time_nodes(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the statements that run when a module is imported: not those inside functions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(node):
            continue
        yield node
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        yield from _import_time_nodes(children)


@cache
def _import_time_names(file: SourceFile) -> tuple[str, ...]:
    """What importing a file may import. Cached: the modules of most walks are the same."""
    nodes = _import_time_nodes(ast.parse(file.text).body)
    return tuple(name for node in nodes for name in _imported(node, file))


def heavy_imports(files: Iterable[SourceFile], start: str) -> list[str]:
    """Returns chains of modules through which importing `start` imports torch or transformers."""
    return import_chains(files, start, _HEAVY)


def import_chains(files: Iterable[SourceFile], start: str, unwanted: Collection[str]) -> list[str]:
    """Returns chains of modules through which importing `start` imports one of `unwanted`, or a
    module inside one."""
    modules = {_module_name(file.path): file for file in files}
    found: list[str] = []
    seen: set[str] = set()
    frontier = [(start, start)]
    while frontier:
        name, chain = frontier.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        parent = name.rpartition(".")[0]
        frontier.append((parent, f"{chain} -> {parent}"))
        for used in _import_time_names(modules[name]):
            if any(f"{used}.".startswith(f"{name}.") for name in unwanted):
                found.append(f"{chain} -> {used}")
            frontier.append((used, f"{chain} -> {used}"))
    return sorted(found)
