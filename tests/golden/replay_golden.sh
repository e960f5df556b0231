#!/bin/sh
# Writes replay_steps.txt, replay_tables.csv and results_*.txt anew, from what is built in build/: for a change that is meant to change
# replayed times, or what programs print and write. What changes, and why, belongs into the commit's message, row by row.
# usage: tests/golden/replay_golden.sh [BUILD]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$build"/tests/test_golden_steps --write tests/golden/replay_steps.txt
"$build"/tables --tables=1,2,5 --out="$scratch" >"$scratch/text"
# quantity, mode, n, reference and ours: without the deviation and the words, which say the same; and without what is measured
sed -E '/,"measured: /d; s/^("[^"]*","[^"]*",[^,]*,[^,]*,[^,]*),.*/\1/; 1s/^table,mode,n,reference,ours,.*/table,mode,n,reference,ours/' "$scratch/tables.csv" >tests/golden/replay_tables.csv
"$build"/tests/test_results --write
