"""The environment of a replay, of Spark and of users' functions, without Airflow's secrets.

Airflow passes its whole environment to every task. A replay needs neither the password of the database nor the key
that signs tokens, and a user's function could print them. `jobs/bin/spark-submit-pdeathsig` removes the same variables
for the JVM that Airflow starts.
"""

import os
from collections.abc import MutableMapping
from typing import Final

SECRET_PREFIXES: Final = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW_", "POSTGRES_", "PGPASS")
SECRETS: Final = ("HINDCAST_SPARK_SECRET", "HINDCAST_ADMIN_PASSWORD")
BACKTRACES: Final = ("RUST_BACKTRACE", "RUST_LIB_BACKTRACE")
"""If one of these is set, the messages of the Delta library end in a native call stack."""


def is_secret(name: str) -> bool:
    """Return whether a variable is for Airflow, its database or the cluster, and not for a replay."""
    return name.startswith(SECRET_PREFIXES) or name in SECRETS


def clean_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Remove secrets and the settings of native backtraces from an environment, by default from that of this process.

    Processes that this process starts inherit the rest.
    """
    for name in [variable for variable in environ if is_secret(variable) or variable in BACKTRACES]:
        del environ[name]
