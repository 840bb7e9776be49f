"""The ways in which one node of a syntax tree is changed: each gives the node that takes its place."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
PAIRS = [
    ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("clamp_min", "clamp_max"),
    ("nanmin", "nanmax"), ("nanargmin", "nanargmax"), ("fmin", "fmax"), ("cummin", "cummax"),
    ("clamp_min_", "clamp_max_"),
]  # fmt: skip
OPPOSITE = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
IN_PLACE = {"append", "extend", "add", "update", "insert", "remove", "discard", "sort", "reverse", "fill", "setdefault"}
AXES = {"dim", "axis"}
TINY = 1e-3  # twice a smaller number is still next to nothing, so only one is added to it

Edit = tuple[str, ast.AST]  # the kind of the mutation, and the node that takes the old one's place


def edits(node: ast.AST, parent: ast.AST | None) -> Iterator[Edit]:
    """Yield every mutation of one node, not of what lies below it.

    Args:
        node: The node to change; it stays as it is.
        parent: The node above, which tells an axis from another number.
    """
    if isinstance(node, ast.keyword):
        if node.arg in AXES:
            yield from (("axis", changed(node, value=literal(n))) for n in other_axes(node.value))
    elif isinstance(node, ast.Constant):
        is_axis = isinstance(parent, ast.keyword) and parent.arg in AXES
        yield from (("constant", literal(value)) for value in ([] if is_axis else other_constants(node.value)))
    elif isinstance(node, ast.expr):
        yield from expressions(node)
    elif isinstance(node, ast.stmt):
        yield from statements(node)


def expressions(node: ast.expr) -> Iterator[Edit]:
    """Yield the mutations of operators, signs, slices and of names like `min`."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield "comparison", changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif (
        isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not (is_text(node.left) or is_text(node.right))
    ):
        yield "arithmetic", changed(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "boolean", changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node.operand
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", node.operand
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OPPOSITE:
        yield "extremum", changed(node, func=changed(node.func, attr=OPPOSITE[node.func.attr]))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OPPOSITE:
        yield "extremum", changed(node, func=changed(node.func, id=OPPOSITE[node.func.id]))
    elif isinstance(node, ast.Slice):
        yield from slices(node)


def slices(node: ast.Slice) -> Iterator[Edit]:
    """Yield the slice without its start, its end or its step."""
    for part in ("lower", "upper", "step"):
        if getattr(node, part) is not None:
            yield "slice", changed(node, **{part: None})


def statements(node: ast.stmt) -> Iterator[Edit]:
    """Yield the mutations of a statement: another operator, or `pass` for one that changes something in place."""
    if isinstance(node, ast.AugAssign):
        if type(node.op) in ARITHMETIC and not is_text(node.value):
            yield "arithmetic", changed(node, op=ARITHMETIC[type(node.op)]())
        yield "dropped", ast.Pass()
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        name = node.value.func.attr
        if name in IN_PLACE or (name.endswith("_") and not name.startswith("_")):
            yield "dropped", ast.Pass()
    elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Subscript) for target in node.targets):
        yield "dropped", ast.Pass()


def other_constants(value: object) -> list[object]:
    """Return what may take a constant's place: the opposite, one more, twice as much."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [1] if value == 0 else [0, 2] if value == 1 else [value + 1, value * 2]
    if isinstance(value, float):
        return [value + 1] if abs(value) < TINY else [value + 1, value * 2]
    return []


def other_axes(value: ast.expr) -> list[int]:
    """Return the axes that may take a constant axis' place."""
    try:
        number = ast.literal_eval(value)
    except ValueError:  # an axis that is computed
        return []
    return [1 if number == 0 else 0] if type(number) is int else []


def literal(value: object) -> ast.expr:
    """Return the expression of a constant; that of a negative number has a sign of its own."""
    return ast.parse(repr(value), mode="eval").body


def is_text(node: ast.expr) -> bool:
    """Say whether an operand is plainly text, which has no arithmetic."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """Return a shallow copy with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
