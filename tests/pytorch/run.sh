#!/bin/sh
# Runs the development checks against PyTorch in order; fails if one fails, or if no Python here has PyTorch.
# usage: BUILD=build tests/pytorch/run.sh [PYTHON]      (python3 and Debian's /usr/bin/python3 are tried)
set -u
here=$(dirname "$0")
python=''
for candidate in "${@:-python3}" /usr/bin/python3; do
    if "$candidate" -c 'import torch' 2>/dev/null; then python=$candidate && break; fi
    [ $# -eq 0 ] || break # the requested one, or none
done
[ -n "$python" ] || {
    echo "pytorch-check: ${1:-python3} has no PyTorch; install it, as with: apt-get install python3-torch" >&2
    exit 1
}
export PYTHONDONTWRITEBYTECODE=1
failed=''
for check in "$here"/check_*.py; do
    "$python" "$check" || failed="$failed $(basename "$check")"
done
[ -z "$failed" ] || { echo "pytorch-check: failed:$failed" >&2; exit 1; }
