"""Reads YAML as plain data: one document of mappings, lists, texts, numbers, true, false and null.

A pipeline file is untrusted input. Anchors and aliases are allowed, but the expanded size is computed before anything
is expanded. So a file of a few hundred bytes cannot become gigabytes, and a file cannot contain itself. All other tags
are refused. A set, for example, has no order, so the fingerprint of its pipeline would differ between processes. A
date without quotes is a text.
"""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path

import yaml
from typing_extensions import override

from jobs.regular_file import read_regular
from windowlib.errors import SpecError

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_DIGITS = 1_000
"""Python writes no number of more than 4,300 digits, and so no message about it."""

_TOO_MANY = f"expands to more than {MAX_NODES:,} values; write less, or use fewer aliases"
_TAG = "tag:yaml.org,2002:"
_CHECKED = frozenset(_TAG + name for name in ("int", "float", "bool", "null"))
_PLAIN = _CHECKED | {_TAG + "str"}
_COLLECTIONS: Mapping[type[yaml.Node], frozenset[str]] = {
    yaml.MappingNode: frozenset({_TAG + "map"}),
    yaml.SequenceNode: frozenset({_TAG + "seq"}),
}
_MERGE = _TAG + "merge"
_NOT_RESOLVED = {_TAG + "timestamp", _TAG + "value"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """`SafeLoader` that refuses too many values, duplicate keys, deep nesting, tags of other types and surrogates."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._count = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        self._count += 1  # an alias is counted here as one value, and with its content by _check_expansion
        if self._count > MAX_NODES:
            raise yaml.MarkedYAMLError(problem=_TOO_MANY)
        self._depth += 1  # PyYAML recurses once per level, so the depth is limited here
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark)
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]  # index is Any in PyYAML
        self._depth -= 1
        if node is not None:
            self._check_plain(node)
        return node

    def _check_plain(self, node: yaml.Node) -> None:
        """Refuse tags other than those of JSON's values, texts with a surrogate, and numbers with too many digits."""
        expected = _COLLECTIONS.get(type(node), _PLAIN)
        is_merge = node.tag == _MERGE and node.value == "<<"
        if node.tag not in expected and not is_merge:
            raise _refused(node, f"the tag {_short(node.tag)} is not allowed here; {_ALLOWED}")
        if not isinstance(node, yaml.ScalarNode):
            return
        if node.tag == f"{_TAG}int" and len(node.value) > MAX_DIGITS:
            raise _refused(node, f"a number of {len(node.value):,} characters; at most {MAX_DIGITS:,} are allowed")
        untagged = self.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
        if node.tag in _CHECKED and untagged != node.tag:
            raise _refused(node, f"{node.value!r} does not have the type of its tag {_short(node.tag)}; {_ALLOWED}")
        if _SURROGATE.search(node.value):
            raise _refused(
                node,
                f"the text {node.value!r} has a surrogate, which is half of a character; write the whole character, "
                "such as \\U0001F600",
            )

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_RESOLVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_ALLOWED = "allowed are mappings, lists, texts, numbers, true, false and null, without a tag"


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


def _refused(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def read_yaml(path: Path) -> object:
    """Return the document in a file of at most 1 MB.

    Raises SpecError: the file is missing, too large, not UTF-8 or not YAML, or breaks a rule of this module; the
    message has line and column.
    """
    try:
        content = read_regular(path, most=MAX_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise SpecError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return parse_yaml(content.decode("utf-8"), source=str(path))
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def parse_yaml(text: str, *, source: str) -> object:
    """Return the document in a text. `source` names it in errors. Raises SpecError: as for `read_yaml`."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check_expansion(root, source)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(f"{source}{_place(error.problem_mark or error.context_mark)}: {problem}") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:  # such as 0x_
        raise SpecError(f"{source}: a value cannot be read: {str(error).splitlines()[0]}") from error


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _check_expansion(root: yaml.Node, source: str) -> None:
    """Refuse a document that contains itself, or has more than `MAX_NODES` nodes after its aliases are expanded."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int:
        identity = id(node)
        if identity in open_nodes:
            raise SpecError(
                f"{source}{_place(node.start_mark)}: an alias refers to a value that contains it; write the values out"
            )
        if identity not in sizes:
            open_nodes.add(identity)
            sizes[identity] = 1 + sum(size(child) for child in _children(node))
            open_nodes.discard(identity)
        return sizes[identity]

    if size(root) > MAX_NODES:
        raise SpecError(f"{source}: {_TOO_MANY}")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
