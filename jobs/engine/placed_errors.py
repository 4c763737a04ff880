"""SpecErrors that already name the pipeline file and the key; windowlib's own errors get both from `naming`."""

from collections.abc import Iterator
from contextlib import contextmanager

from windowlib.errors import SpecError


class PlacedSpecError(SpecError):
    """A SpecError whose message begins with the pipeline file and the key."""

    @classmethod
    def at(cls, source: str, path: str, problem: str) -> "PlacedSpecError":
        """Return the error for a key: `source` is the pipeline file, `path` the key in it."""
        return cls(f"{source}: {path}: {problem}")


@contextmanager
def naming(source: str, path: str) -> Iterator[None]:
    """Add the pipeline file and the key to a SpecError of the body, unless the error is a PlacedSpecError.

    Raises PlacedSpecError: the body raised a SpecError.
    """
    try:
        yield
    except PlacedSpecError:
        raise
    except SpecError as error:
        raise PlacedSpecError.at(source, path, str(error)) from error
