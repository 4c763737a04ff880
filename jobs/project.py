"""The directory of this clone: the DAGs, the pipelines and the jars are found from it. Standard library only."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
