# One image for all parts, so that Airflow, the Spark master and its workers have the same Python, Java, jars and code.
FROM debian:bookworm-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates make openjdk-17-jre-headless procps python3.11 python3.11-venv tini util-linux \
 && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 10001 hindcast \
 && mkdir -p /opt/hindcast /opt/airflow/logs /opt/spark-conf /lake \
 && chown -R hindcast: /opt/hindcast /opt/airflow /opt/spark-conf /lake
USER hindcast
WORKDIR /opt/hindcast

# The files of the set-up come first, so that a change of other code does not install everything again.
COPY --chown=hindcast Makefile pyproject.toml README.md requirements*.in requirements*.txt requirements*.lock ./
COPY --chown=hindcast setup setup
COPY --chown=hindcast jobs/__init__.py jobs/project.py jobs/
COPY --chown=hindcast jobs/spark/__init__.py jobs/spark/jars.py jobs/spark/java.py jobs/spark/
COPY --chown=hindcast windowlib/__init__.py windowlib/errors.py windowlib/
RUN make setup && rm -rf "$HOME/.cache"

COPY --chown=hindcast . .

ENV PATH=/opt/hindcast/.venv/bin:$PATH \
    PYTHONPATH=/opt/hindcast \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/hindcast/.venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/hindcast/.venv/bin/python \
    SPARK_CONF_DIR=/opt/spark-conf \
    AIRFLOW_HOME=/opt/airflow \
    HINDCAST_LAKE=/lake
# tini forwards signals, and reaps the processes that a killed Spark driver leaves.
ENTRYPOINT ["tini", "-g", "--", "python", "/opt/hindcast/deploy/container.py"]
