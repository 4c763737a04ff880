"""The script that spark-submit starts. It calls `jobs.orchestration.replay_job`, and its directory has no module.

Python puts the directory of a script first in its search path. With a script in jobs/orchestration/, `import requests`
anywhere in the process would import jobs/orchestration/requests.py instead of the library of that name.
"""

import sys

from jobs.orchestration.replay_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
