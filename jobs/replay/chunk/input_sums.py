"""The sums of ids by which the input of a slice is counted and named. Tasks import this module, so it is light."""

import hashlib
from dataclasses import dataclass, field, fields

from windowlib.records.row_ids import IdSum


@dataclass(slots=True)
class InputSums:
    """Sums of ids of records: those of a block, or of a slice.

    `content` covers rank and hash of all records, and `duplicate_content` those of the duplicates. `records` are all
    records, `invalid` the invalid ones. `invalid_rows` are their rows in `invalid_records`. `filtered` are the records
    that `log.where` does not keep. They have no row in any table. `duplicate` are the duplicates, and `duplicate_rows`
    their rows in `duplicate_records`.
    """

    content: IdSum = field(default_factory=IdSum)
    records: IdSum = field(default_factory=IdSum)
    invalid: IdSum = field(default_factory=IdSum)
    invalid_rows: IdSum = field(default_factory=IdSum)
    filtered: IdSum = field(default_factory=IdSum)
    duplicate: IdSum = field(default_factory=IdSum)
    duplicate_rows: IdSum = field(default_factory=IdSum)
    duplicate_content: IdSum = field(default_factory=IdSum)

    def merge(self, other: "InputSums") -> None:
        """Add all ids of `other`."""
        for sums in fields(self):
            getattr(self, sums.name).merge(getattr(other, sums.name))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the input: of all ids of (rank, record), and of those of the duplicates.

        Which records are duplicates depends on slices before, whose records are no part of the fingerprint.
        """
        text = "input:{}:{}:{}".format(*self.content.as_row())
        if self.duplicate_content.count:
            text += ":duplicates:{}:{}:{}".format(*self.duplicate_content.as_row())
        return hashlib.sha256(text.encode("ascii")).hexdigest()
