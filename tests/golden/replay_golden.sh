#!/bin/sh
# Rewrites replay_steps.txt, replay_tables.csv and results_*.txt with the programs in build/, for a commit that is meant to change replayed times or the output of programs. Its message says what changes and why, row by row.
# usage: tests/golden/replay_golden.sh [BUILD]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$build"/tests/test_golden_steps --write tests/golden/replay_steps.txt
"$build"/tables --tables=1,2,5 --out="$scratch" >"$scratch/text"
# keep table, mode, n, reference and ours: the deviation and the words follow from them, and measured rows differ each time
sed -E '/,"measured: /d; s/^("[^"]*","[^"]*",[^,]*,[^,]*,[^,]*),.*/\1/; 1s/^table,mode,n,reference,ours,.*/table,mode,n,reference,ours/' "$scratch/tables.csv" >tests/golden/replay_tables.csv
"$build"/tests/test_results --write
