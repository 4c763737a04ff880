"""Remove the parts of an installed environment that no container uses, about 400 MB.

    slim_environment.py VENV

The image build runs it after the install, and before Python compiles the packages. Each entry has its reason below.
Standard library only. Exit status 1 if an entry matches nothing: the package changed, and the entry is stale.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

UNUSED: Mapping[str, tuple[str, ...]] = {
    "tests of packages, which their code does not import": (
        "pandas/tests",
        "pyarrow/tests",
        "numpy/*/tests",
        "numpy/tests",
        "scipy/*/tests",
        "scipy/*/*/tests",
    ),
    "headers for extensions in C": ("pyarrow/include", "numpy/_core/include"),
    "examples and test data of Spark": ("pyspark/examples", "pyspark/data"),
    "Spark's state store for streams": ("pyspark/jars/rocksdbjni-*.jar",),
    "Spark's machine learning": (
        "pyspark/jars/spark-mllib_*.jar",
        "pyspark/jars/breeze_*.jar",
        "pyspark/jars/breeze-macros_*.jar",
        "pyspark/jars/spire*_*.jar",
        "pyspark/jars/cats-kernel_*.jar",
        "pyspark/jars/algebra_*.jar",
        "pyspark/jars/lapack-*.jar",
        "pyspark/jars/blas-*.jar",
        "pyspark/jars/arpack*.jar",
    ),
    "Hive's metastore: tables are found by path (ORC needs hive-storage-api, which stays)": (
        "pyspark/jars/hive-[bcejlm]*.jar",
        "pyspark/jars/hive-se*.jar",
        "pyspark/jars/hive-sh*.jar",
        "pyspark/jars/spark-hive*.jar",
        "pyspark/jars/datanucleus-*.jar",
        "pyspark/jars/derby*.jar",
    ),
}


def matches(packages: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield (pattern, its files and directories below `packages`) for each pattern of `UNUSED`."""
    for patterns in UNUSED.values():
        for pattern in patterns:
            yield pattern, sorted(packages.glob(pattern))


def remove(path: Path) -> None:
    """Remove a file or a whole directory."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def main(arguments: list[str]) -> int:
    """Remove the unused parts of the environment in `arguments[0]`; return the exit status."""
    packages = next(Path(arguments[0]).glob("lib/python3*/site-packages"))
    stale = []
    for pattern, found in list(matches(packages)):
        if not found:
            stale.append(pattern)
        for path in found:
            remove(path)
    if stale:
        sys.stderr.write(f"slim_environment.py: nothing matches {', '.join(stale)} in {packages}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
