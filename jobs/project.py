"""The directory of this clone, which contains the DAGs, the pipelines and the jars. Standard library only."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

PROGRAMS: Final = Path(__file__).resolve().parent / "bin"
"""The directory of the programs that Airflow's tasks start."""
