"""Everything that runs a replay: pipeline files, plan, ledger, replay, checks, report, and the `hindcast` command."""
