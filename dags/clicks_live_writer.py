"""Gives the Airflow of `make demo` a DAG that plays the producer of the log `event_logs/clicks_live`.

Only the Airflow of a demonstration sets HINDCAST_DEMO. Every other Airflow gets no DAG from this file.
"""

import os
from datetime import UTC, datetime

if os.environ.get("HINDCAST_DEMO"):
    from airflow.sdk import DAG, CronTriggerTimetable, task

    with DAG(
        dag_id="clicks_live_writer",
        description="Append the files of event_logs/clicks_live that are due",
        doc_md="Plays the producer of `event_logs/clicks_live`, the log of the pipeline `clicks_live`. It looks every "
        "hour for files that are due. In each week, one day comes late, one in two parts, one twice, and one has "
        "clicks without a user, which fails a check.",
        schedule=CronTriggerTimetable("0 * * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["hindcast", "demo"],
    ) as dag:

        @task
        def append() -> list[str]:
            """Append the files that are due, and return the names of them."""
            from jobs.demo.clicks_live import deliver
            from jobs.wall_clock import now_ms

            return [one.app_id for one in deliver(os.environ["HINDCAST_LAKE"], now_ms=now_ms())]

        append()
