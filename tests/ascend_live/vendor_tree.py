"""Reads a Python package as text: its names by its syntax trees, nothing imported and nothing run."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

Found = tuple[str, ast.AST]  # the module that defines a name, and the definition


class Missing(Exception):  # noqa: N818 - an answer
    """The package has no such name."""


class Tree:
    """The package ``torch_npu`` under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.module = cache(self._module)

    def path(self, module: str) -> Path:
        """The file of a module."""
        stem = self.root.joinpath(*module.split("."))
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")

    def _module(self, module: str) -> ast.Module:
        path = self.path(module)
        if not path.exists():
            raise Missing(module)
        return ast.parse(path.read_text(encoding="utf-8"))

    def find(self, module: str, name: str, depth: int = 0) -> Found:
        """Where a name of a module is defined: a class, a function, an assignment, or an import of what is C++."""
        if depth > 12:
            raise Missing(f"{module}.{name}")
        stars = []
        for node in self.module(module).body:
            if (defined := _defined(node, name)) is not None:
                return module, defined
            if isinstance(node, ast.ImportFrom):
                source = self._source(module, node)
                for alias in node.names:
                    if alias.name == "*":
                        stars.append(source)
                    elif (alias.asname or alias.name) == name:
                        return self._imported(source, alias.name, node, depth)
        for source in stars:
            try:
                return self.find(source, name, depth + 1)
            except Missing:
                continue
        raise Missing(f"{module}.{name}")

    def _imported(self, source: str, name: str, node: ast.ImportFrom, depth: int) -> Found:
        if source.startswith("torch_npu._C"):
            return source, node
        if self.path(f"{source}.{name}").exists():
            return f"{source}.{name}", self.module(f"{source}.{name}")
        return self.find(source, name, depth + 1)

    def _source(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        if self.path(module).name != "__init__.py":
            parts = parts[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def text(self, module: str, node: ast.AST) -> str | None:
        """The text that an expression stands for, through classes of constants; None where it is none."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            where, owner = self.find(module, node.value.id)
            return self.attribute(where, owner, node.attr)
        return None

    def attribute(self, module: str, owner: ast.AST, name: str) -> str | None:
        """The text of a constant in a class."""
        for node in getattr(owner, "body", []):
            if (defined := _defined(node, name)) is not None:
                return self.text(module, defined)
        return None


def _defined(node: ast.AST, name: str) -> ast.AST | None:
    """What a statement gives to a name: a class, a function, or the value of an assignment."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
        return node
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
        return node.value
    return None


def function(owner: ast.AST, name: str) -> ast.FunctionDef:
    """A method of a class, or a function of a module. Raises Missing."""
    for node in getattr(owner, "body", []):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise Missing(name)


def parameters(node: ast.AST) -> set[str]:
    """The names of what a function, or a class, can be given."""
    called = function(node, "__init__") if isinstance(node, ast.ClassDef) else node
    assert isinstance(called, ast.FunctionDef)
    return {argument.arg for argument in (*called.args.args, *called.args.kwonlyargs)} - {"self", "cls"}


def members(owner: ast.AST) -> set[str]:
    """The methods of a class and what its methods assign to ``self``."""
    names = {node.name for node in getattr(owner, "body", []) if isinstance(node, ast.FunctionDef)}
    stored = (n for n in ast.walk(owner) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return names | {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


def calls(node: ast.AST) -> list[str]:
    """What is called inside, as it is written, in order of the text."""
    found = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return [ast.unparse(call.func) for call in sorted(found, key=lambda call: (call.lineno, call.col_offset))]


def decorators(node: ast.AST) -> list[str]:
    """A function's decorators, as they are written."""
    return [ast.unparse(entry) for entry in getattr(node, "decorator_list", [])]
