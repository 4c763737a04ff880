"""Fixtures that import the DAG file as Airflow's DAG processor does, in a temporary home of Airflow."""

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.support.message_sinks import HOST, WebhookSink, webhook_sink
from tests.support.places import ROOT

if TYPE_CHECKING:
    from airflow.sdk import DAG

DAG_FILE = ROOT / "dags" / "hindcast_dags.py"

StoreDags = Callable[..., None]
LoadDags = Callable[[Path], Mapping[str, "DAG"]]


@pytest.fixture(autouse=True)
def _home_before_airflow(airflow_home: Path) -> None:
    """Set the home before the first test of this directory that imports Airflow, in whatever order the tests run."""
    assert airflow_home.is_dir()


@pytest.fixture
def load_dags(monkeypatch: pytest.MonkeyPatch) -> LoadDags:
    """Return a function: directory of pipeline files -> the DAGs that the DAG file makes of them."""

    def load(pipelines: Path) -> Mapping[str, "DAG"]:
        from airflow.sdk import DAG

        monkeypatch.setenv("HINDCAST_PIPELINES", str(pipelines))
        module = import_dag_file(DAG_FILE)
        return {name: value for name, value in vars(module).items() if isinstance(value, DAG)}

    return load


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookSink]:
    """Receive the messages to the receiver `hook` of a pipeline file."""
    with webhook_sink() as sink:
        connection = {"conn_type": "http", "host": f"http://{HOST}:{sink.port}/"}
        monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps(connection))
        yield sink


@pytest.fixture
def store_dags(airflow_home: Path) -> StoreDags:
    """Return a function that makes Airflow's database, and stores DAGs in it as the DAG processor does."""
    assert airflow_home.is_dir()

    def store(*dags: "DAG") -> None:
        from airflow.models.dagbundle import DagBundleModel
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.serialization.definitions.dag import SerializedDAG
        from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
        from airflow.utils.db import initdb
        from airflow.utils.session import create_session

        lazy = [LazyDeserializedDAG(data=DagSerialization.to_dict(dag)) for dag in dags]
        initdb()
        with create_session() as session:
            session.merge(DagBundleModel(name="tests"))
            session.flush()
            SerializedDAG.bulk_write_to_db("tests", None, lazy, session=session)
            for dag in lazy:
                SerializedDagModel.write_dag(dag, bundle_name="tests", session=session)

    return store


def import_dag_file(file: Path) -> ModuleType:
    """Import a DAG file again, whatever was imported before."""
    spec = importlib.util.spec_from_file_location("hindcast_dags_under_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's providers import deprecated modules of Airflow
        spec.loader.exec_module(module)
    return module
