"""Parses an expression, refuses what is not in the vocabulary, and writes it as SQL of DuckDB.

sqlglot parses the text. `_Writer` knows a fixed list of node classes and of their parts, so that nothing else reaches
DuckDB, whatever a newer sqlglot accepts. The same writer makes the normal form of a text: brackets around each
operator, names in quotes, keywords in lower case. Texts with equal normal forms are the same expression for the
fingerprint of the spec.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.errors import SqlglotError

from jobs.pipeline.models.expressions.dialect import Dialect, cannot_cast
from jobs.pipeline.models.expressions.vocabulary import CLOCKS, DATE_PARTS, FUNCTIONS, TRUNCATED_TO, TYPES
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.plain_text import shortened

MAX_TEXT: Final = 4_000
"""The length of an expression, and of its normal form, which the ledger stores."""
MAX_DEPTH: Final = 20
"""Operators, functions and brackets may be nested so deep. A chain such as `a and b and c` is one level.

sqlglot calls itself 23 times for a level. Python allows 1,000 calls.
"""
ALLOWED: Final = (
    "columns, paths (payload.user.id), literals, cast, try_cast, ->, ->>, case, comparisons, in, between, like, is "
    "null, and, or, not, + - * / // %, ||, extract, functions (docs/reference/pipelines.md lists them)"
)

_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?", re.ASCII)
_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.And: "and", exp.Or: "or",
    exp.NullSafeEQ: "is not distinct from", exp.NullSafeNEQ: "is distinct from",
}  # fmt: skip
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_NAMES: Final[Mapping[str, str]] = {
    "Anonymous": "this function", "Select": "a query", "Subquery": "a query", "Window": "a window function",
    "Bracket": "an index in []", "Star": "*", "Alias": "a second word after the expression", "Tuple": "a list in ()",
    "Interval": "an interval", "Placeholder": "a parameter", "Exists": "a query", "Struct": "a value in {}",
    "Array": "a list in []", "ILike": "ilike", "Escape": "escape", "AtTimeZone": "at time zone", "Collate": "collate",
}  # fmt: skip

Path = tuple[str, ...]
"""The parts of a name with dots: a column and the fields inside it."""
Names = Callable[[Path], str]
"""Returns the SQL in place of a name."""


@lru_cache(maxsize=256)
def normal_text(text: str) -> str:
    """Return the normal form of an expression. The normal form of a normal form is the same text.

    Raises ValueError: the text is no expression of the vocabulary; the message has what was found, the place and what
    is allowed.
    """
    normal = written(text, quoted)
    if len(normal) > MAX_TEXT:
        raise ValueError(
            f"an expression has at most {MAX_TEXT:,} characters in its normal form, found {len(normal):,}; divide it"
        )
    return normal


def quoted(path: Path) -> str:
    """Return a name as SQL: each part in quotes."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in path)


def path_of(text: str) -> Path | None:
    """Return the parts of an expression that is only a name, such as `payload.user.id`; None for any other one.

    Raises ValueError: as for `normal_text`.
    """
    node = _parsed(text)
    return _path(node) if isinstance(node, exp.Column | exp.Dot) else None


def written(text: str, names: Names, *, are_bytes: Callable[[Path], bool] | None = None) -> str:
    """Return an expression as SQL of DuckDB.

    `names` returns the SQL in place of a name. `are_bytes` tells whether a name is a BINARY column; None if the types
    of names are not known yet.
    Raises ValueError: as for `normal_text`.
    """
    return _Writer(names, are_bytes).write(_parsed(text))


def _parsed(text: str) -> exp.Expr:
    if len(text) > MAX_TEXT:
        raise ValueError(f"an expression has at most {MAX_TEXT:,} characters, found {len(text):,}")
    try:
        dialect = Dialect()
        tokens = dialect.tokenize(text)
        for token in tokens:
            if token.comments:
                raise ValueError(f"comments are not allowed in an expression, found one at position {token.start + 1}")
            if token.text == ";" and token.token_type.name == "SEMICOLON":
                raise ValueError(f"one expression is allowed, found ';' at position {token.start + 1}")
        trees = [tree for tree in dialect.parser().parse(tokens, text) if tree is not None]
    except SqlglotError as error:
        raise ValueError(f"{shortened(text)!r} is not an expression: {_reason(error)}; allowed: {ALLOWED}") from error
    except RecursionError:
        raise ValueError(f"{shortened(text)!r} is nested too deep; at most {MAX_DEPTH} levels are allowed") from None
    if len(trees) != 1:
        raise ValueError(f"expected an expression, such as payload.user.id, found {shortened(text)!r}")
    return trees[0]


def _reason(error: SqlglotError) -> str:
    problems = [problem for problem in getattr(error, "errors", ()) if problem.get("description")]
    if not problems:
        return "a text or a name in quotes has no end"
    described = str(problems[0]["description"]).partition(" for <class")[0]
    return f"{described[0].lower()}{described[1:]} at position {problems[0].get('col', '?')}"


@dataclass(slots=True)
class _Writer:
    names: Names
    are_bytes: Callable[[Path], bool] | None
    depth: int = 0

    def write(self, node: object) -> str:
        """Return a node and all inside it as SQL."""
        node = _without_brackets(node)
        if not isinstance(node, exp.Expr):
            raise ValueError(f"a part of the expression is missing; allowed: {ALLOWED}")  # noqa: TRY004 - for pydantic
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"the expression is nested too deep; at most {MAX_DEPTH} levels are allowed")
        try:
            return self._write(node)
        finally:
            self.depth -= 1

    def _write(self, node: exp.Expr) -> str:
        if (operator := _OPERATORS.get(type(node))) is not None:
            return self._chain(node, operator)
        write = _WRITERS.get(type(node))
        return _refuse(node) if write is None else write(self, node)

    def _chain(self, node: exp.Expr, operator: str) -> str:
        """Write an operator, and without further brackets the same operator in its left operand."""
        if isinstance(node, _COMPARISONS):
            return self._comparison(node, operator)
        operands: list[str] = []
        first: object = node
        while isinstance(first, exp.Expr) and type(first) is type(node):
            _only(first, "this", "expression", flags=("typed", "safe"))
            operands.append(self.write(first.expression))
            first = _without_brackets(first.this)
        return f"({f' {operator} '.join([self.write(first), *reversed(operands)])})"

    def _comparison(self, node: exp.Binary, operator: str) -> str:
        """Write a comparison. One beside it without brackets has no order that all dialects of SQL share."""
        _only(node, "this", "expression", flags=("typed", "safe"))
        if isinstance(node.this, _COMPARISONS) or isinstance(node.expression, _COMPARISONS):
            raise ValueError(  # noqa: TRY004 - for pydantic
                f"the comparison {operator!r} is beside another one; write brackets, (a = b) = c, or a < b and b < c"
            )
        return f"({self.write(node.this)} {operator} {self.write(node.expression)})"

    def name(self, node: exp.Expr) -> str:
        """Write a column or a path."""
        path = _path(node)
        if path is None:
            return _refuse(node)
        if len(path) == 1 and path[0].lower() in CLOCKS:
            raise ValueError(
                f"{path[0]}{_place(node)} is not allowed: a record must have the same values in every replay; name a "
                "column of times, such as log.arrival_time"
            )
        return self.names(path)

    def function(self, node: exp.Expr) -> str:
        _only(node, "this", "expressions")
        return self._call(node, str(node.this).lower(), node.expressions)

    def arrow(self, node: exp.Expr) -> str:
        """Write `->` and `->>` as functions."""
        _only(node, "this", "expression")
        name = "json_extract" if isinstance(node, exp.JSONExtract) else "json_extract_string"
        return self._call(node, name, [node.this, node.expression])

    def prefix(self, node: exp.Expr) -> str:
        """Write `-` or `not` before an operand."""
        _only(node, "this")
        return f"({'-' if isinstance(node, exp.Neg) else 'not'} {self.write(node.this)})"

    def like(self, node: exp.Expr) -> str:
        _only(node, "this", "expression", flags=("negate",))
        word = "not like" if node.args.get("negate") else "like"
        return f"({self.write(node.this)} {word} {self.write(node.expression)})"

    def is_in(self, node: exp.Expr) -> str:
        _only(node, "this", "expressions")
        return f"({self.write(node.this)} in ({', '.join(map(self.write, node.expressions))}))"

    def between(self, node: exp.Expr) -> str:
        _only(node, "this", "low", "high")
        low, high = self.write(node.args["low"]), self.write(node.args["high"])
        return f"({self.write(node.this)} between {low} and {high})"

    def literal(self, node: exp.Expr) -> str:
        return _literal(node)

    def _call(self, node: exp.Expr, name: str, arguments: Sequence[exp.Expr]) -> str:
        function = FUNCTIONS.get(name)
        if function is None:
            clock = ": a record must have the same values in every replay" if name in CLOCKS else ""
            raise ValueError(
                f"function {name}{_place(node)} is not allowed{clock}; allowed functions: {', '.join(FUNCTIONS)}"
                f"{did_you_mean(name, FUNCTIONS)}"
            )
        if not function.least <= len(arguments) <= function.most:
            most = "" if function.most == function.least else f" to {function.most}"
            raise ValueError(f"function {name} takes {function.least}{most} arguments, found {len(arguments)}")
        for place in function.literal:
            if place < len(arguments) and not isinstance(arguments[place], exp.Literal):
                raise ValueError(
                    f"argument {place + 1} of function {name} must be a literal, such as {_EXAMPLES[name]}"
                )
        if name == "date_trunc":
            _check_part(str(arguments[0].this), TRUNCATED_TO, "date_trunc")
        texts = [*map(self.write, arguments)]
        return f"{name}({', '.join(texts)})" if self.are_bytes is None else self._for_duckdb(name, arguments[0], texts)

    def _for_duckdb(self, name: str, argument: exp.Expr, texts: Sequence[str]) -> str:
        """Write a call that DuckDB runs: bytes are decoded, and numbers that are no time of DuckDB overflow."""
        first, *others = texts
        path = _path(argument)
        if name == "make_timestamp" and not others:
            first = f"({first} - {BEFORE_US}) + {BEFORE_US}"
        if FUNCTIONS[name].takes_bytes and path is not None and self.are_bytes is not None:
            first = f"decode({first})" if self.are_bytes(path) else first
            if name == "decode":
                return first
        return f"{name}({', '.join((first, *others))})"

    def is_null(self, node: exp.Expr) -> str:
        """Write `is null`, `is true` or `is false`."""
        _only(node, "this", "expression")
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            return _refuse(node)
        return f"({self.write(node.this)} is {_literal(node.expression)})"

    def case(self, node: exp.Expr) -> str:
        """Write `case`, with or without a subject."""
        _only(node, "this", "ifs", "default")
        subject = f" {self.write(node.this)}" if node.this is not None else ""
        branches = "".join(
            f" when {self.write(branch.this)} then {self.write(branch.args.get('true'))}" for branch in node.args["ifs"]
        )
        default = node.args.get("default")
        return f"(case{subject}{branches}{'' if default is None else f' else {self.write(default)}'} end)"

    def cast(self, node: exp.Expr) -> str:
        """Write `cast` or `try_cast` to a type of the vocabulary."""
        _only(node, "this", "to", flags=("safe",))
        kind, path = node.args["to"], _path(node.this)
        name = TYPES.get(kind.this.name if isinstance(kind.this, exp.DType) else "")
        if name is None or kind.args.get("nested"):
            raise cannot_cast(kind)
        if path is not None and self.are_bytes is not None and self.are_bytes(path):
            raise ValueError(
                f"column {'.'.join(path)} is BINARY; write decode({'.'.join(path)}) to read its bytes as text"
            )
        if kind.expressions and name == "float":
            raise ValueError(f"cannot cast to {shortened(str(kind))}; write float (24 bits) or double (53 bits)")
        parameters = [str(parameter.this.this) for parameter in kind.expressions] if name == "decimal" else []
        if not all(map(str.isdigit, parameters)):
            _refuse(node)
        word = "try_cast" if isinstance(node, exp.TryCast) else "cast"
        return f"{word}({self.write(node.this)} as {name}{'(' + ', '.join(parameters) + ')' if parameters else ''})"

    def extract(self, node: exp.Expr) -> str:
        _only(node, "this", "expression")
        part = str(node.this.this).lower()
        _check_part(part, DATE_PARTS, "extract")
        return f"extract({part} from {self.write(node.expression)})"


_WRITERS: Final[Mapping[type[exp.Expr], Callable[[_Writer, exp.Expr], str]]] = {
    exp.Column: _Writer.name, exp.Dot: _Writer.name, exp.Anonymous: _Writer.function, exp.Neg: _Writer.prefix,
    exp.Not: _Writer.prefix, exp.JSONExtract: _Writer.arrow, exp.JSONExtractScalar: _Writer.arrow,
    exp.Is: _Writer.is_null,
    exp.Like: _Writer.like, exp.In: _Writer.is_in, exp.Between: _Writer.between, exp.Case: _Writer.case,
    exp.Cast: _Writer.cast, exp.TryCast: _Writer.cast, exp.Extract: _Writer.extract, exp.Literal: _Writer.literal,
    exp.Null: _Writer.literal, exp.Boolean: _Writer.literal,
}  # fmt: skip
"""The nodes that are allowed besides operators and brackets."""
BEFORE_US: Final = 14_454_775_808
"""The numbers of microseconds of 64 bits that are before DuckDB's first time. Their difference to it overflows.

make_timestamp and columns of type TIMESTAMP_NTZ have such times, and a cast of one to a text ends the database.
"""
_EXAMPLES: Final[Mapping[str, str]] = {
    "date_trunc": "'day'", "json_extract": "'$.user.id'", "json_extract_string": "'$.user.id'",
    "regexp_extract": "'([a-z]+)'", "regexp_matches": "'^[a-z]+$'", "round": "2", "strptime": "'%Y-%m-%d'",
    "try_strptime": "'%Y-%m-%d'",
}  # fmt: skip


def _without_brackets(node: object) -> object:
    while isinstance(node, exp.Paren):
        _only(node, "this")
        node = node.this
    return node


def _check_part(part: str, allowed: Sequence[str], function: str) -> None:
    if part not in allowed:
        raise ValueError(
            f"{function} of {shortened(part)!r}; allowed: {', '.join(allowed)}{did_you_mean(part, allowed)}"
        )


def _path(node: object) -> Path | None:
    """Return the parts of a name; None if the node is no name."""
    match node:
        case exp.Column(this=exp.Identifier()):
            return tuple(part.name for part in node.parts)
        case exp.Dot(expression=exp.Identifier() as last) if (before := _path(node.this)) is not None:
            return (*before, last.name)
        case exp.Paren():
            return _path(node.this)
        case _:
            return None


def _literal(node: exp.Expr) -> str:
    match node:
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Literal(is_string=True):
            if "\0" in node.name:
                raise ValueError("a literal must not have the character with the code 0")
            return "'" + node.name.replace("'", "''") + "'"
        case _ if _NUMBER.fullmatch(node.name):
            return node.name
        case _:
            return _refuse(node)


def _only(node: exp.Expr, *parts: str, flags: Sequence[str] = ()) -> None:
    """Refuse a node with other parts than these. Flags are allowed, and have no part."""
    if any(value for name, value in node.args.items() if name not in (*parts, *flags)):
        _refuse(node)


def _refuse(node: exp.Expr) -> NoReturn:
    name = type(node).__name__
    raise ValueError(
        f"{_NAMES.get(name, name.lower())}{_place(node)} is not allowed in an expression; allowed: {ALLOWED}"
    )


def _place(node: exp.Expr) -> str:
    """Return the place of a node in the text, or that of the first part of it that has one."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return f" at position {min(starts) + 1}" if starts else ""
