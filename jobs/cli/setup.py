"""`hindcast setup`: fetch what Spark needs, where Hindcast is installed as a wheel. `make setup` does it in a clone."""

import click

from jobs.console import OK, REFUSED, say
from jobs.project import CACHE


@click.command(
    "setup",
    short_help="Fetch what Spark needs, where Hindcast is installed as a wheel.",
    epilog="Example: hindcast setup",
)
@click.option(
    "--s3", is_flag=True, help="Also fetch Spark's S3 file system. Only a replay through DataFrames needs it."
)
def setup_command(*, s3: bool) -> int:
    """Fetch the Delta jars from Maven Central, check them, and make the class archive of the JVM.

    The files are in ~/.cache/hindcast (XDG_CACHE_HOME). The user that runs Airflow's tasks needs them: run this command
    as that user, or copy the jars and set HINDCAST_JARS.
    """
    from jobs.spark.class_archive import make_archive
    from jobs.spark.fetch_jars import DELTA, S3, fetch_jars

    for jars in (DELTA, *((S3,) if s3 else ())):
        if fetch_jars(jars):
            return REFUSED
        say(f"the jars of {jars.name} are in {jars.directory}")
    try:
        say(f"the class archive is {make_archive()}; it makes every start of Spark faster")
    except Exception as error:  # noqa: BLE001 - Spark starts without an archive as well
        say(f"no class archive was made, so Spark starts more slowly: {error}")
    say(f"ready: everything is in {CACHE}")
    return OK
