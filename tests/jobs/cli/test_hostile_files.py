"""Files that people, programs and broken disks leave: each is read as it was, or refused with one clear paragraph.

No file ends in a traceback, a hang, or a process without memory. A damaged cache is as good as none.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
import yaml

from expectations.loader import load_suite_file
from jobs.ledger.head import Head, read_head
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.snapshot import read_snapshot
from jobs.pipeline.files import load_file
from jobs.planning.plan_file import PlanFile
from jobs.project import ROOT
from jobs.reading.upstream_place import _Store
from tests.jobs.cli.conftest import Shell
from tests.jobs.ledger.test_history import request
from tests.support.fake_replay import PIPELINE
from tests.support.fuzzing import seeds
from tests.support.hostile_files import FORMS, bounded, mutated, put, scrambled
from windowlib.errors import HindcastError, LedgerError

LONGEST: Final = 2_000
"""The characters of the longest message: some list all allowed names."""
PLAN: Final = {
    "hindcast_plan": 2, "pipeline": "sales", "from_ms": 0, "to_ms": 86_400_000, "fresh": False, "checks": None,
    "spec_fingerprint": "f", "published": -1,
    "slices": [{"slice_id": "1970-01-01", "reason": "new", "certain": True, "records": 1, "bytes": 1, "log": {"a": 1}}],
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of files: a valid document, its text, and the function that reads the file at a path."""

    document: Any
    text: str
    name: str
    read: Callable[[Path], object]

    @classmethod
    def of_json(cls, document: Any, name: str, read: Callable[[Path], object]) -> "Kind":  # noqa: ANN401
        return cls(document, json.dumps(document, sort_keys=True), name, read)


HEAD: Final = json.loads(Head(version=7, tip="ab" * 32).encoded())
SUITE: Final = json.loads((ROOT / "expectations/flights.json").read_text(encoding="utf-8"))
KINDS: Final = {
    "pipeline file": Kind(yaml.safe_load(PIPELINE), PIPELINE, "sales.yaml", load_file),
    "suite": Kind.of_json(SUITE, "sales.json", load_suite_file),
    "plan": Kind.of_json(PLAN, "plan.json", PlanFile.load),
    "head of a ledger": Kind.of_json(HEAD, f"_head/{7:020}.json", lambda path: read_head(str(path.parents[1]))),
    "index of an upstream cache": Kind.of_json(
        {"a" * 64: "b" * 64}, "_index.json", lambda path: _Store.of(str(path.parent))
    ),
}
HARMLESS: Final = {"a link", "CRLF", "CR", "byte order mark", "10 MB of spaces"}
"""A kind that accepts one of these reads what it reads without it."""
of_each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def read_or_refused(kind: Kind, path: Path, what: object) -> str:
    """Read a file. Return the message of the refusal, empty if there is none."""
    try:
        with bounded():
            kind.read(path)
    except HindcastError as error:
        message = str(error)
        assert "\n" not in message, (what, message)
        assert len(message) < LONGEST, (what, message)
        assert "bug in Hindcast" not in message, (what, message)
        assert str(path.parent).removesuffix("/_head") in message, (what, message)
        return message
    return ""


@of_each_kind
def test_a_changed_file_is_read_or_refused(tmp_path: Path, kind: Kind) -> None:
    """Defect: a head file with deep brackets was reported as a bug."""
    path = tmp_path / kind.name
    path.parent.mkdir(exist_ok=True)
    for seed in seeds(12, among=len(KINDS)):
        rng = Random(seed)
        content = mutated(rng, kind.document) if seed % 2 else scrambled(rng, kind.text.encode())
        path.write_bytes(content)
        read_or_refused(kind, path, content[:400])


@pytest.mark.slow
@of_each_kind
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, kind: Kind) -> None:
    """Defects: a pipe in place of a plan or a suite blocked the command, and a link to /dev/zero took all memory."""
    path = tmp_path / kind.name
    path.parent.mkdir(exist_ok=True)
    path.write_text(kind.text, encoding="utf-8")
    assert read_or_refused(kind, path, "the file itself") == ""
    assert read_or_refused(kind, _placed(path, "a link", kind), "a link") == ""
    for form in FORMS:
        message = read_or_refused(kind, _placed(path, form, kind), form)
        assert message or kind.name == "_index.json" or form in HARMLESS, form


def _placed(path: Path, form: str, kind: Kind) -> Path:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    put(form, path, kind.text.encode())
    return path


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
@of_each_kind
def test_a_file_without_the_right_to_read_it_is_refused(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / kind.name
    path.parent.mkdir(exist_ok=True)
    path.write_text(kind.text, encoding="utf-8")
    path.chmod(0)
    assert "Permission denied" in read_or_refused(kind, path, "mode 0")


def test_commands_do_not_wait_for_pipes(shell: Shell) -> None:
    pipe = shell.root / "pipe.json"
    os.mkfifo(pipe)
    for command in (("suite", "try", str(pipe), "sales"), ("run", "sales", "--plan", str(pipe))):
        with bounded():
            assert shell(*command) in {1, 2}
        assert str(pipe) in shell.err
        assert "Traceback" not in shell.err


def test_a_snapshot_that_is_damaged_is_as_good_as_none(tmp_path: Path) -> None:
    """Also one whose hash is right. Defect: deep brackets in it were reported as a bug."""
    uri = tmp_path / "ledger"
    Ledger(str(uri), now_ms=lambda: 1).write(lambda _view: request(1, 2))
    REMEMBERED.forget_all()
    good = Ledger(str(uri), now_ms=lambda: 1, limits=LedgerLimits(snapshot_every=1)).view()
    [path] = (uri / "_snapshot").glob("*.zst")
    content = path.read_bytes()
    end = content.index(b"\n", 64)
    header = json.loads(content[64:end])
    blocks, start = [], end + 1
    for compressed, size in header["blocks"]:
        blocks.append(pa.Codec("zstd").decompress(content[start : start + compressed], size, asbytes=True))
        start += compressed
    for seed in seeds(18):
        rng = Random(seed)
        if seed % 3 == 0:
            path.write_bytes(scrambled(rng, content))
        elif seed % 3 == 1:
            path.write_bytes(_signed(mutated(rng, header), blocks))
        else:
            others = [block.split(b"\n") for block in blocks]
            lines = rng.choice(others)
            place = rng.randrange(len(lines))
            lines[place] = mutated(rng, json.loads(lines[place]))
            path.write_bytes(_signed(header, [b"\n".join(other) for other in others]))
        with bounded():
            history = read_snapshot(str(uri))
        if history is not None and seed % 3 == 2:
            with bounded(), suppress(LedgerError):  # a line is decoded when its value is read
                dict(history.project.runs.events)
        if seed % 3 == 0:
            REMEMBERED.forget_all()
            assert asdict(Ledger(str(uri), now_ms=lambda: 1).view()) == asdict(good)


def _signed(header: bytes | dict[str, object], blocks: list[bytes]) -> bytes:
    """Return a snapshot whose hash is that of its content. Values of a header get the sizes of the blocks."""
    compressed = [pa.Codec("zstd").compress(block, asbytes=True) for block in blocks]
    sizes = [(len(small), len(block)) for small, block in zip(compressed, blocks, strict=True)]
    first = header if isinstance(header, bytes) else json.dumps(header | {"blocks": sizes}).encode()
    rest = b"".join([first, b"\n", *compressed])
    return hashlib.sha256(rest).hexdigest().encode("ascii") + rest
