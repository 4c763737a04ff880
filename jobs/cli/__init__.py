"""The `hindcast` command, one module per group of commands."""

import gc

# A command imports 80,000 objects that live to its end. With Python's default threshold, the collector would visit them
# again and again (10 % of the time of a short command).
gc.set_threshold(50_000, 20, 20)
