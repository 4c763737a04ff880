"""An Airflow on this machine, with its own PostgreSQL: starts, supervises and stops both."""
