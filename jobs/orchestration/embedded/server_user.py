"""The user that runs the embedded database: the invoking user, or for root a user id of this cluster only.

PostgreSQL refuses to run as root. With a shared account such as `nobody`, every other service of that account could
read the cluster. So root takes a user id that no account, group, process or other cluster has. The cluster's directory
belongs to that user id, where the next start finds it.
"""

import contextlib
import grp
import hashlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import psutil

# These ids are not assigned to people, services or systemd's dynamic users (systemd's UIDS-GIDS document).
UIDS: Final = range(60_706, 61_184)
_FORMER_ACCOUNT = "nobody"


class Owner(NamedTuple):
    """A user id and a group id."""

    uid: int
    gid: int


def owner_of(directory: Path, *, among: Path) -> Owner:
    """Return the user that runs the cluster in a directory.

    Without root, that is the invoking user. For root, it is the owner of an existing cluster, or the first free id. The
    directory may not exist yet. `among` is the directory with the other clusters of this machine.
    """
    if os.geteuid() != 0:
        return Owner(os.geteuid(), os.getegid())
    known = _owner_uid(directory)
    if known in UIDS:
        return Owner(known, known)
    others = {_owner_uid(other) for other in among.glob("*")} if among.is_dir() else set()
    taken = others | set(_uids_of_processes())
    start = int.from_bytes(hashlib.sha256(os.fsencode(directory)).digest()[:4]) % len(UIDS)
    order = [*UIDS[start:], *UIDS[:start]]
    uid = next((uid for uid in order if uid not in taken and not _has_account(uid)), order[0])
    return Owner(uid, uid)


def account_for_initdb() -> Owner:
    """Return a user with an account: for root, one without a process, so that no other program acts as this user."""
    if os.geteuid() != 0:
        return Owner(os.geteuid(), os.getegid())
    busy = set(_uids_of_processes())
    former = pwd.getpwnam(_FORMER_ACCOUNT)
    accounts = [former, *(account for account in pwd.getpwall() if account.pw_uid != 0)]
    chosen = next((account for account in accounts if account.pw_uid not in busy), former)
    return Owner(chosen.pw_uid, chosen.pw_gid)


def may_own(uid: int) -> bool:
    """Return whether a cluster's directory may belong to a user.

    Allowed are the invoking user and, for root, an id of `UIDS` and `nobody`, which earlier releases used.
    """
    return uid == os.geteuid() or (os.geteuid() == 0 and (uid in UIDS or uid == pwd.getpwnam(_FORMER_ACCOUNT).pw_uid))


def hand_over(directory: Path, owner: Owner) -> None:
    """Change the owner of a directory and of everything in it. Links are not followed. Without root, do nothing."""
    if os.geteuid() != 0:
        return
    os.chown(directory, *owner, follow_symlinks=False)
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            os.chown(Path(parent, name), *owner, follow_symlinks=False)


def run_as(owner: Owner, death_signal: str) -> list[str | Path]:
    """Return the first words of a command that runs as a user and gets a signal when this process ends."""
    command: list[str | Path] = ["setpriv", "--pdeathsig", death_signal]
    if os.geteuid() == 0:
        command += ["--reuid", str(owner.uid), "--regid", str(owner.gid), "--clear-groups"]
    return command


def _owner_uid(directory: Path) -> int:
    try:
        return directory.lstat().st_uid
    except OSError:
        return 0


def _has_account(uid: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        try:
            look_up(uid)
        except KeyError:
            continue
        return True
    return False


def _uids_of_processes() -> Iterator[int]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield from process.uids()
