"""The code of a layer of transformers, changed so that it can carry streams where it carried hidden states.

Every call, sum, difference, product and quotient goes through a function that is handed in; everything else of the code
stays: its arguments, caches, tuples, conditions and dropout. The function keeps the globals of its module.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

OPERATIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}
PREFIX = "__gomhc_"


class NoCodeError(ValueError):
    """A function has no Python code that could be read."""


@cache
def rewritten(function: Callable[..., Any], handlers: type) -> Callable[..., Any]:
    """Return the function with every call and operation going through the static methods of `handlers`.

    They are `call(place, function, *args, **kwargs)`, where the place is the called expression as the code has it, and
    `add(a, b)`, `subtract(a, b)`, `multiply(a, b)`, `divide(a, b)`.
    """
    original: Any = inspect.unwrap(function)
    try:
        lines, first_line = inspect.getsourcelines(original)
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise NoCodeError(f"the code of {getattr(function, '__qualname__', function)} cannot be read") from error
    if not isinstance(definition, ast.FunctionDef):
        raise NoCodeError(f"{getattr(function, '__qualname__', function)} is not a plain function")
    definition.body = [_Rewriter().visit(statement) for statement in definition.body]
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    free = zip(original.__code__.co_freevars, original.__closure__ or (), strict=True)
    captured = {name: cell.cell_contents for name, cell in free}
    captured |= {PREFIX + name: getattr(handlers, name) for name in ("call", *OPERATIONS.values())}
    return _define(definition, original, first_line, captured)


def _define(definition: ast.FunctionDef, original: Any, first_line: int, captured: dict[str, Any]) -> Any:
    """The function that this code defines, in the module of the original and with what that one had captured."""
    maker: Any = ast.parse(f"def make({', '.join(captured)}): return {definition.name}").body[0]
    maker.body.insert(0, definition)
    module = ast.fix_missing_locations(ast.Module([maker], []))
    ast.increment_lineno(module, first_line - 1)
    scope: dict[str, Any] = {}
    exec(compile(module, original.__code__.co_filename, "exec"), original.__globals__, scope)
    function: Any = scope["make"](**captured)
    function.__defaults__, function.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    function.__qualname__ = original.__qualname__
    return function


class _Rewriter(ast.NodeTransformer):
    """Calls and operations become calls of the handlers."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return ast.Call(node.func, [ast.Name("__class__", ast.Load()), ast.Name("self", ast.Load())], [])
        place = ast.unparse(node.func).removeprefix("self.")
        self.generic_visit(node)
        if not node.args and not node.keywords:
            return node
        self.places[place] += 1
        if self.places[place] > 1:
            place = f"{place}#{self.places[place]}"
        return _handled("call", ast.Constant(place), node.func, *node.args, keywords=node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        operation = OPERATIONS.get(type(node.op))
        return node if operation is None else _handled(operation, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        operation = OPERATIONS.get(type(node.op))
        if operation is None or not isinstance(node.target, ast.Name):
            return node
        value = _handled(operation, ast.Name(node.target.id, ast.Load()), node.value)
        return ast.Assign([node.target], value)


def _handled(name: str, *args: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.Call:
    return ast.Call(ast.Name(PREFIX + name, ast.Load()), list(args), keywords or [])
