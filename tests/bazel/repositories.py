"""Finds the repositories that MODULE.bazel and WORKSPACE declare, by running both as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from tests.bazel.starlark import BAZEL_4, Tree, is_build_file, is_bzl_file, strings

_USE = re.compile(r"@@?([A-Za-z0-9_.-]+)//")
_BUILT_IN = {"bazel_tools"}


class _Run:
    """Runs files with fakes of Bazel's functions; `declared` grows with each repository.

    Without `dev`, dev dependencies are left out, as in a module that depends on this one.
    """

    def __init__(self, tree: Tree, dev: bool = True) -> None:
        self.tree = tree
        self.dev = dev
        self.declared: set[str] = set()
        self.used_from_extension: set[str] = set()

    def file(self, path: str) -> dict[str, Any]:
        """Runs a file and returns its names."""
        names: dict[str, Any] = {
            "Label": str,
            "attr": MagicMock(),
            "bazel_dep": self._bazel_dep,
            "local_repository": self._declare,
            "module": _ignore,
            "module_extension": lambda implementation: implementation,
            "native": SimpleNamespace(existing_rule=_ignore),
            "register_toolchains": _ignore,
            "repository_rule": lambda **_: self._declare,
            "struct": SimpleNamespace,
            "use_extension": self._use_extension,
            "use_repo": self._use_repo,
            "workspace": self._declare,
        }
        names["load"] = self._loader(names)
        exec(compile(self.tree[path], path, "exec"), names)
        return names

    def _loader(self, names: dict[str, Any]) -> Callable[..., None]:
        def load(label: str, *symbols: str, **renamed: str) -> None:
            loaded = self.file(label.removeprefix("//").replace(":", "/"))
            names.update({symbol: loaded[symbol] for symbol in symbols})
            names.update({name: loaded[symbol] for name, symbol in renamed.items()})

        return load

    def _declare(self, name: str, **_: object) -> None:
        self.declared.add(name)

    def _bazel_dep(
        self, name: str, repo_name: str | None = None, dev_dependency: bool = False, **_: object
    ) -> None:
        if self.dev or not dev_dependency:
            self.declared.add(repo_name or name)

    def _use_extension(
        self, label: str, name: str, dev_dependency: bool = False
    ) -> set[str] | None:
        """The repositories that the extension creates; None if it does not count."""
        if dev_dependency and not self.dev:
            return None
        run = _Run(self.tree)
        run.file(label.removeprefix("//").replace(":", "/"))[name](None)
        return run.declared

    def _use_repo(self, made: set[str] | None, *names: str, **renamed: str) -> None:
        if made is None:
            return
        missing = {*names, *renamed.values()} - made
        if missing:
            raise ValueError(f"MODULE.bazel uses {sorted(missing)}, which its extension lacks")
        self.declared |= {*names, *renamed}


def _ignore(*_: object, **__: object) -> None:
    pass


def declared(tree: Tree, path: str) -> set[str]:
    """The repositories that `path`, MODULE.bazel or WORKSPACE, declares.

    Raises:
        ValueError: MODULE.bazel uses a repository that its extension does not create.
    """
    run = _Run(tree)
    run.file(path)
    return run.declared


def dev_repositories(tree: Tree) -> set[str]:
    """What tests, the server and packages need, each fetched with its first use."""
    run = _Run(tree)
    run.file("third_party/repositories.bzl")["dev_repositories"]()
    return run.declared


def declared_for_hosts(tree: Tree) -> dict[str, set[str]]:
    """File -> the repositories that it declares for workspaces that depend on this one."""
    module, macro = _Run(tree, dev=False), _Run(tree)
    module.file("MODULE.bazel")
    macro.file("third_party/bazel4.bzl")["bazel4_repositories"]()
    return {"MODULE.bazel": module.declared, "third_party/bazel4.bzl": macro.declared}


def used(tree: Tree) -> dict[str, str]:
    """The repositories that labels name -> a file that does."""
    return {
        name: path
        for path, text in tree.items()
        if (is_build_file(path) or is_bzl_file(path)) and not path.startswith(BAZEL_4)
        for string in strings(text)
        for name in _USE.findall(string)
    }


def undeclared(tree: Tree) -> Iterator[str]:
    """Yields one line for each repository that labels name and a side does not declare."""
    for side in ("MODULE.bazel", "WORKSPACE"):
        known = declared(tree, side) | _BUILT_IN
        for name, path in sorted(used(tree).items()):
            if name not in known:
                yield f"{path}: @{name} is not declared in {side}"
