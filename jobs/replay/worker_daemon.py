"""The process from which Spark forks its Python workers on this machine, in place of `pyspark.daemon`.

It has imported the modules of the tasks before it forks, so the workers share them, and the first task of a worker does
not import for a second. The setting `spark.python.daemon.module` names this module (jobs.spark.session).
"""

import gc

from pyspark.daemon import manager

import jobs.replay.stages.encode
import jobs.replay.stages.scan
import jobs.replay.stages.windows  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # else each worker would copy the pages of all modules when its collector looks at them
    manager()
