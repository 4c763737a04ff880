#!/usr/bin/env bash
# Prints the path of a Python 3.11 that can make virtual environments. If $PYTHON is set, the script tries only that one.
set -euo pipefail

candidates=(python3.11 python3 python)
[[ -n "${PYTHON:-}" ]] && candidates=("$PYTHON")

seen=()
for candidate in "${candidates[@]}"; do
    # The path of the interpreter itself, not of a shim or of the link in an activated environment.
    found=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2], getattr(sys, "_base_executable", ""))' \
        2>/dev/null) || continue
    version=${found%% *} path=${found#* }
    if [[ "$version" != 3.11 ]]; then
        seen+=("$candidate is $version")
    elif ! "$path" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "Hindcast needs the venv module of Python 3.11, and $path does not have it." >&2
        echo "Install it (Debian and Ubuntu: apt-get install python3.11-venv), then run make again." >&2
        exit 1
    else
        printf '%s\n' "$path"
        exit 0
    fi
done

{
    echo "Hindcast needs Python 3.11. None of these commands is a Python 3.11: ${candidates[*]}${seen:+ (${seen[*]})}."
    echo "Install it (Debian 12: apt-get install python3.11 python3.11-venv; elsewhere: pyenv install 3.11,"
    echo "or the package python3.11 of your system), or give its path: make setup PYTHON=/path/to/python3.11"
} >&2
exit 1
