"""What a replay, Spark and users' functions find in their environment: none of Airflow's secrets.

Airflow hands its whole environment to every task. Nothing that a replay starts needs the database's password or the
secret that signs tokens, and a user's function could print them. `bin/spark-submit-pdeathsig` does the same for the
JVM that Airflow starts.
"""

import os
from collections.abc import MutableMapping
from typing import Final

SECRET_PREFIXES: Final = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW_", "POSTGRES_", "PGPASS")
SECRETS: Final = ("HINDCAST_SPARK_SECRET", "HINDCAST_ADMIN_PASSWORD")
BACKTRACES: Final = ("RUST_BACKTRACE", "RUST_LIB_BACKTRACE")
"""With these set, the messages of the Delta library end in a native call stack."""


def is_secret(name: str) -> bool:
    """Whether a variable belongs to Airflow, its database or the cluster, and to no replay."""
    return name.startswith(SECRET_PREFIXES) or name in SECRETS


def clean_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Take secrets and native backtraces out of an environment, that of this process by default.

    What this process starts inherits the rest.
    """
    for name in [one for one in environ if is_secret(one) or one in BACKTRACES]:
        del environ[name]
