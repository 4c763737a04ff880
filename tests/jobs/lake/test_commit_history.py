"""What the commits of a log did to a slice, from their actions alone."""

from jobs.lake.commit_history import GroupHistory, _Action


def _move(history: GroupHistory, version: int, removed: str, added: str, *, changes: bool, is_accepted: bool) -> None:
    """Take a commit that has a file in place of another one."""
    files = ((removed, False), (added, True))
    actions = [
        _Action(is_add=is_add, changes_data=changes, file=file, has_vector=False, groups=("g",))
        for file, is_add in files
    ]
    history.take(version, "WRITE", actions, is_accepted=is_accepted)


def test_a_restore_of_the_present_records_is_no_change() -> None:
    """Defect: a slice was told as changed if its files were also those from before an accepted commit."""
    history = GroupHistory()
    _move(history, 1, "a", "b", changes=True, is_accepted=True)
    _move(history, 2, "b", "a", changes=True, is_accepted=True)
    _move(history, 3, "a", "c", changes=False, is_accepted=False)
    _move(history, 4, "c", "a", changes=True, is_accepted=False)
    assert history.broken is None
    assert history.commits == {1, 2}
