"""Commit files of a ledger that are lost or unreadable, and how they are written again from their data files.

A commit of a ledger adds one data file, whose events have the version of the commit. If only the commit file is lost,
the events are still stored. The chain of hashes, from the head back, proves that they are those of the commit: another
file may have events of that version which somebody has given up. The actions of a commit without events, such as a
compaction, are not needed.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress

from jobs.lake.delta_tables import commit_path
from jobs.lake.durable_commits import sync_commits
from jobs.lake.json_lines import json_lines
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system, hidden_file, names_in, read_bytes, remove_file, write_bytes
from windowlib.errors import LedgerError
from windowlib.libraries import pa

_CHAIN = ("seq", "ordinal", "previous", "hash")


def lost_commits(uri: str, *, newest: int = 0) -> tuple[int, ...]:
    """Return the versions from the newest checkpoint to the last commit, or to `newest`, without a readable file."""
    versions: dict[str, set[int]] = {"json": set(), "checkpoint.parquet": set()}
    for name in names_in(f"{uri}/_delta_log"):
        version, _, kind = name.partition(".")
        if kind in versions and version.isdecimal():
            versions[kind].add(int(version))
    first = max(versions["checkpoint.parquet"], default=-1) + 1
    wanted = range(first, max(newest, *versions["json"], first - 1) + 1)
    return tuple(version for version in wanted if version not in versions["json"] or not _is_readable(uri, version))


def restore_commits(uri: str, head: tuple[int, str], *, check: Callable[[], object]) -> tuple[int, ...]:
    """Write the lost commit files of a ledger again; return their versions, none if they cannot be proved.

    `head` is the version of the newest event and its hash. `check` reads the ledger, and raises a LedgerError if its
    chain does not fit. Then all is left as it was.
    """
    newest, tip = head
    lost = lost_commits(uri, newest=newest)
    # The first commit has the columns and the id of the table. One after the head was not reported by a command.
    if not lost or lost[0] == 0 or lost[-1] > newest:
        return ()
    before = {}
    for version in lost:
        with suppress(FileNotFoundError):
            before[version] = read_bytes(commit_path(uri, version))
    try:
        for version, content in _contents(uri, lost, tip=tip).items():
            _put(commit_path(uri, version), content)
        check()
    except BaseException as error:
        for version in lost:
            if version in before:
                _put(commit_path(uri, version), before[version])
            else:
                remove_file(commit_path(uri, version))
        if isinstance(error, LedgerError):
            return ()
        raise
    sync_commits({uri: lost[0] - 1})
    return lost


def _put(path: str, content: bytes) -> None:
    with hidden_file(path) as hidden:
        write_bytes(hidden, content)


def _is_readable(uri: str, version: int) -> bool:
    try:
        actions = json_lines(read_bytes(commit_path(uri, version)))
    except PermissionError:
        return True  # it is not lost
    except (OSError, ValueError):
        return False
    return bool(actions) and all(isinstance(action, dict) for action in actions)


def _contents(uri: str, lost: Iterable[int], *, tip: str) -> dict[int, bytes]:
    """Return the content of each lost commit file. One without a data file that is proved adds nothing."""
    before, files = dict[str, str](), dict[int, list[tuple[str, str]]]()
    for name in names_in(uri):
        if not name.endswith(".parquet"):
            continue
        rows = _links(uri, name)
        before.update((own, previous) for _seq, _ordinal, previous, own in rows)
        if rows and len({seq for seq, *_ in rows}) == 1:
            seq, _ordinal, _previous, last = max(rows)
            files.setdefault(seq, []).append((name, last))
    chain = set[str]()
    while tip in before:
        chain.add(tip)
        tip = before.pop(tip)
    proved = {version: next((name for name, last in own if last in chain), None) for version, own in files.items()}
    return {version: _commit(uri, proved.get(version)) for version in lost}


def _links(uri: str, name: str) -> list[tuple[int, int, str, str]]:
    """Return what a data file has of the chain; nothing if it cannot be read, or is of a version without own hashes."""
    system, root = file_system(uri)
    try:
        with system.open_input_file(place_of(root, name)) as data:
            rows = open_parquet(data).read(columns=[*_CHAIN]).select(_CHAIN)
        return [*zip(*(column.to_pylist() for column in rows.columns), strict=True)]
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return []


def _commit(uri: str, name: str | None) -> bytes:
    """Return the content of a commit file that adds a data file, or nothing."""
    if name is None:
        return _lines({"commitInfo": {"timestamp": 0, "operation": "OPTIMIZE", "operationParameters": {}}})
    from jobs.lake.file_commits import add_action

    system, root = file_system(uri)
    _footer, file = add_action(system, place_of(root, name), path=name, partition={}, bounded={"seq"})
    add = {
        "path": file.path,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": True,
        "stats": file.stats,
    }
    write = {"timestamp": file.modification_time, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    return _lines({"commitInfo": write}, {"add": add})


def _lines(*actions: dict[str, object]) -> bytes:
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode("utf-8")
