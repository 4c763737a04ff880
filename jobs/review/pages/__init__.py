"""The content of the review pages, as plain values: no HTML, no Airflow. `jobs.airflow_ui` shows them.

A page is made from a view of the ledger, and from rows that are compared with the ledger as other readers do.
"""
