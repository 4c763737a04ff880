"""The review pages inside Airflow's web interface: a plugin, and a FastAPI app with the pages.

`plugin` is imported by every process of Airflow, so it imports nothing else. Only the api-server imports `app`.
"""
