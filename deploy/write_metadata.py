"""Write the metadata of the project beside its code, so that Airflow finds the plugin: `write_metadata.py DIRECTORY`.

The image has the code as files and not as an installed package. Airflow looks for the entry point `airflow.plugins` in
the metadata of packages, which may be in any directory of PYTHONPATH. Standard library only.
"""

import sys
import tomllib
from pathlib import Path


def write_metadata(directory: Path) -> Path:
    """Write name, version and entry points of `pyproject.toml` in a directory; return the directory of the metadata."""
    project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    place = directory / f"{project['name']}-{project['version']}.dist-info"
    place.mkdir(exist_ok=True)
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (place / "METADATA").write_text(head, encoding="utf-8")
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{n} = {v}" for n, v in entries.items()))
    ]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


if __name__ == "__main__":
    write_metadata(Path(sys.argv[1]))
