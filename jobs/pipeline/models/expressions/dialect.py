"""The syntax of expressions: that of DuckDB, without its functions and its types of types."""

from typing import Any, ClassVar, Final

from sqlglot import TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser
from typing_extensions import override

from jobs.pipeline.models.expressions.vocabulary import TYPES
from jobs.plain_text import shortened

_SIZES: Final = (
    (TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN),
    (TokenType.L_PAREN, TokenType.NUMBER, TokenType.COMMA, TokenType.NUMBER, TokenType.R_PAREN),
)
_BRACKETS: Final = {TokenType.L_PAREN, TokenType.L_BRACKET}


class Dialect(DuckDB):
    """DuckDB's syntax. Functions stay as they are written, so that `FUNCTIONS` alone tells what they mean."""

    class Parser(DuckDBParser):
        """Parses each function as a name with arguments, except those with a syntax of their own."""

        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: DuckDBParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

        @override
        def _parse_types(self, *_args: Any, **named: Any) -> exp.Expr | None:
            """Parse a type of one word, perhaps with numbers in brackets.

            sqlglot reads any other word with brackets twice, as a type and as an expression. Each level of
            `bigint(bigint(a))` would double the time, so a short text would stop the reading of all pipeline files.
            Raises ValueError: a cast has another type.
            """
            kinds = tuple(token.token_type for token in self._tokens[self._index + 1 : self._index + 7])
            after = next((len(size) for size in _SIZES if kinds[: len(size)] == size), 0)
            is_cast = "check_func" not in named  # sqlglot gives it where a text may be an expression, too
            word = self._curr.text
            is_nested = DuckDB.Tokenizer.KEYWORDS.get(word.upper()) in self.NESTED_TYPE_TOKENS
            opening = {TokenType.LT, *_BRACKETS} if is_nested else _BRACKETS  # `a::int < 5` compares
            if opening.isdisjoint(kinds[after : after + 1]):
                may_name = is_cast and named.get("allow_identifiers", True) and word.isidentifier()
                return super()._parse_types(allow_identifiers=may_name)
            if is_cast:
                raise cannot_cast(word)
            return None

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Leave the path as it is written."""
        return path


def cannot_cast(kind: object) -> ValueError:
    """Return the error of a cast to a type that is not in the vocabulary."""
    return ValueError(f"cannot cast to {shortened(str(kind))}; allowed: {', '.join(dict.fromkeys(TYPES.values()))}")
