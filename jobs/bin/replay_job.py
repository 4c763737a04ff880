"""What spark-submit starts: `jobs.orchestration.replay_job`, from a directory in which no other module lies.

Python puts the directory of a script before everything else on its path: started from jobs/, `import requests` anywhere
in the process would find jobs/orchestration/requests.py instead of the library of that name.
"""

import sys

from jobs.orchestration.replay_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
