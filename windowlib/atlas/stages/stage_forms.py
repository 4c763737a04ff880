"""The form of a stage of the inner pipeline, and the record of documents that fail in it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from windowlib.atlas.documents.documents import Document
from windowlib.atlas.expressions.forms import ExpressionFault, Scope


class Item(NamedTuple):
    """A document in the pipeline.

    `origin` is the index of its record in the window; None after the documents were grouped.
    """

    document: Document
    origin: int | None


class Failure(NamedTuple):
    """A document that failed, with the stage and the reason."""

    item: Item
    stage: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a pipeline over the documents of one window."""

    meta: Document
    now_ms: int
    failures: list[Failure] = field(default_factory=list)

    def scope(self, document: Document) -> Scope:
        return Scope(document, self.meta, self.now_ms)


Stage = Callable[[list[Item], Run], list[Item]]


def each(name: str, change: Callable[[Scope], Iterable[Document]]) -> Stage:
    """Return the stage that replaces each document by the documents of `change`; a document that fails is a failure."""

    def run_stage(items: list[Item], run: Run) -> list[Item]:
        results: list[Item] = []
        for item in items:
            try:
                made = list(change(run.scope(item.document)))
            except ExpressionFault as error:
                run.failures.append(Failure(item, name, str(error)))
                continue
            results += [Item(document, item.origin) for document in made]
        return results

    return run_stage
