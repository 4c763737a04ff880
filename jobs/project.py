"""The directory of this clone, which contains the DAGs, the pipelines and the jars. Standard library only."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
