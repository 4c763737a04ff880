"""What was published since an instant or a publication, with clocks that are ahead or go back."""

import pytest

from jobs.ledger.publications import Publication, PublicationId, published_since


def past(*times: int) -> list[Publication]:
    return [
        Publication(seq=seq, at_ms=at_ms, request_id=None, who="me", undoes=None)
        for seq, at_ms in enumerate(times, start=1)
    ]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((), []),
        ((10, 20, 30), [3]),
        ((10, 20, 25), []),
        ((30, 40), [1, 2]),
        ((10, 99, 20, 30), [4]),
        ((10, 30, 1, 40), [2, 3, 4]),
        ((10, 20, 30, 1), [3, 4]),
        ((99, 20, 30), [3]),
        ((99, 98), [1, 2]),
    ],
)
def test_by_their_times(times: tuple[int, ...], expected: list[int]) -> None:
    """Since 25: a clock that was ahead (99) makes nothing old new, and one that went back (1) makes nothing new old."""
    assert [publication.seq for publication in published_since(past(*times), 25)] == expected


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (PublicationId(), [1, 2, 3]),
        (PublicationId(2, 5), [3]),
        (PublicationId(3, 1), []),
        (PublicationId(2, 7), [2, 3]),
        (None, [2, 3]),
    ],
)
def test_after_a_known_publication_times_do_not_count(newest: PublicationId | None, expected: list[int]) -> None:
    """A publication that was lost is not known by its version alone."""
    assert [publication.seq for publication in published_since(past(4, 5, 1), 4, newest=newest)] == expected
