"""The DAG files, imported as Airflow's DAG processor does, in a home of their own."""

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.sdk import DAG

ROOT = Path(__file__).resolve().parents[2]
DAG_FILE = ROOT / "dags" / "hindcast_dags.py"

LoadDags = Callable[[Path], Mapping[str, "DAG"]]


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """AIRFLOW_HOME of this session; set before anything imports airflow, which reads it once."""
    home = tmp_path_factory.mktemp("airflow")
    assert "airflow" not in sys.modules, "airflow was imported before its home was set; import it inside of tests only"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(home))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
        for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
            patch.delenv(name)
        yield home


@pytest.fixture
def load_dags(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> LoadDags:
    """The DAGs that the DAG file makes of a directory of pipeline files."""
    assert airflow_home.is_dir()

    def load(pipelines: Path) -> Mapping[str, "DAG"]:
        from airflow.sdk import DAG

        monkeypatch.setenv("HINDCAST_PIPELINES", str(pipelines))
        module = _import_afresh()
        return {name: value for name, value in vars(module).items() if isinstance(value, DAG)}

    return load


def _import_afresh() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hindcast_dags_under_test", DAG_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's providers import what Airflow calls deprecated
        spec.loader.exec_module(module)
    return module
