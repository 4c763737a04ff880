"""The embedded Airflow: starts, supervises and stops an Airflow and its PostgreSQL on this machine."""
