"""Flips bits of every region of every table: `python -m tests.flips [--most N] [--seed N] [GROUP ...]`.

It prints the table of docs/explanation/integrity.md. `--most` is the number of flips of each table and region: of a
smaller region, every byte is flipped. A GROUP is the beginning of the name of a table. What is silent or ends with a
traceback is printed with its place.
"""

import sys
import tempfile
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.flips.sweeps import GROUPS, Found, Group, Sweep, table_lines
from tests.support.write_faults import ForkServer


def main() -> int:
    """Play all places of the groups, print the table, and return 1 if anything is silent or crashed."""
    parser = ArgumentParser(prog="python -m tests.flips", description=__doc__)
    parser.add_argument("--most", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    arguments = parser.parse_args()
    groups = [group for group in GROUPS if group.name.startswith(tuple(arguments.groups) or "")]
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(arguments.processes) as pool:
        tasks = [pool.submit(_played, group, Path(root), most=arguments.most, seed=arguments.seed) for group in groups]
        played = {group.name: task.result() for group, task in zip(groups, tasks, strict=True)}
    print("\n".join(table_lines(played)))  # noqa: T201
    return int(any(flip.is_silent or flip.problems for every in played.values() for flip in every))


def _played(group: Group, root: Path, *, most: int, seed: int) -> list[Found]:
    place = root / group.name.replace(" ", "_")
    played = []
    with ForkServer(place / "server") as server:
        sweep = Sweep(group, server, place).prepare()
        for each in sweep.places(most, seed=seed):
            flip = sweep.play(each)
            played.append(flip)
            if flip.wrong or flip.problems:
                kind = "silent" if flip.is_silent else "wrong" if flip.wrong else "found"
                text = f"{group.name}: {kind}: {tuple(each)}: {flip.wrong} {flip.problems}"
                print(text, file=sys.stderr, flush=True)  # noqa: T201
    return played


if __name__ == "__main__":
    sys.exit(main())
