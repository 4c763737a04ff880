"""The process from which Spark forks its Python workers on this machine, in place of `pyspark.daemon`.

It has imported the modules of the tasks before it forks, so the workers share them, and the first task of a worker does
not import for a second. The setting `spark.python.daemon.module` names this module (jobs.spark.session).

Spark puts its archive `pyspark.zip` before the installed pyspark. Modules of an archive are compiled at each import,
which takes this process 0.5 s and each worker 0.1 s. This process and its workers import the installed modules.
"""

import gc
import sys
from importlib.machinery import PathFinder

_INSTALLED = [entry for entry in sys.path if not entry.endswith(".zip")]
if PathFinder.find_spec("pyspark", _INSTALLED) is not None:
    sys.path[:] = _INSTALLED

from pyspark.daemon import manager  # noqa: E402

import jobs.replay.stages.encode  # noqa: E402
import jobs.replay.stages.scan  # noqa: E402
import jobs.replay.stages.windows  # noqa: E402, F401

if __name__ == "__main__":
    gc.freeze()  # else each worker would copy the pages of all modules when its collector looks at them
    manager()
