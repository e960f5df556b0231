#!/bin/sh
# Runs each test program many times on a busy machine, and prints those that ever failed: half of the runs two at a
# time, the other half four at a time, in addition to two loops that only keep a core busy. Exit status 1 if any failed.
# usage: tests/soak.sh FOLDER PROGRAM...     (SOAK_RUNS: runs of each, 20; LS_TEST_DEADLINE_S as for tests/run.sh)
# FOLDER gets runs.txt (a line per run), table.txt (a line per program) and the output of each run that failed.
set -u
export LC_ALL=C
here=$(dirname "$0")

# --- one run: soak.sh --one SOAK FOLDER JOBS RUN PROGRAM -------------------------------------------------------------

# 255: the soak has been killed, and xargs must start no more runs.
run_one() {
    soak=$1 folder=$2 jobs=$3 run=$4 program=$5 name=$(basename "$5")
    kill -0 "$soak" 2>/dev/null || exit 255
    log=$folder/$name.$run.log
    start=$(date +%s) failed=0
    echo "$program" | "$here/run.sh" 1 >"$log" 2>&1 || failed=1
    echo "$name $run $jobs $failed $(($(date +%s) - start))" >>"$folder/runs.txt"
    if [ $failed -eq 0 ]; then rm -f "$log"; else echo "$name failed (run $run, $jobs at a time): $log"; fi
}

if [ "${1:-}" = --one ]; then
    shift
    run_one "$@"
    exit 0
fi

# --- the load --------------------------------------------------------------------------------------------------------

# Checks every few milliseconds that the soak is alive, so that this process ends even if the soak is killed.
keep_busy() {
    while kill -0 "$1" 2>/dev/null; do
        i=0
        while [ $i -lt 10000 ]; do i=$((i + 1)); done
    done
}

if [ "${1:-}" = --busy ]; then
    keep_busy "$2"
    exit 0
fi

children=''
end() {
    trap - EXIT
    # shellcheck disable=SC2086 # a list
    [ -z "$children" ] || kill $children 2>/dev/null
    wait
    exit "$1"
}

# --- all of them -----------------------------------------------------------------------------------------------------

[ $# -gt 1 ] || { echo 'usage: tests/soak.sh FOLDER PROGRAM...' >&2; exit 2; }
folder=$1 runs=${SOAK_RUNS:-20}
shift
case $runs in '' | *[!0-9]* | 0*) echo "SOAK_RUNS is '$runs'; it takes a number from 1 on" >&2; exit 2 ;; esac
rm -rf "$folder" && mkdir -p "$folder" && : >"$folder/runs.txt" || exit 1

trap 'end $?' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for loop in 1 2; do
    "$0" --busy $$ &
    children="$children $!"
done

# Runs $2 to $3 of every program, $1 at a time, in rounds: so that different programs run at the same time.
soak() {
    jobs=$1 from=$2 to=$3
    shift 3
    [ "$from" -le "$to" ] || return 0
    echo "$# test programs, runs $from to $to of each, $jobs at a time"
    for run in $(seq "$from" "$to"); do
        for program in "$@"; do echo "$run $program"; done
    done >"$folder/order.txt"
    xargs -a "$folder/order.txt" -P "$jobs" -n 2 "$0" --one $$ "$folder" "$jobs" &
    children="$children $!"
    wait $! # in the foreground, a signal would be handled only after its end
}
half=$(((runs + 1) / 2))
soak 2 1 $half "$@"
soak 4 $((half + 1)) "$runs" "$@"
rm -f "$folder/order.txt"

# program, runs, failures, longest run in seconds; those that failed most first
awk '{ runs[$1]++; failures[$1] += $4; if ($5 > longest[$1]) longest[$1] = $5 }
    END { for (name in runs) printf "%-30s %4d %8d %11d\n", name, runs[name], failures[name], longest[name] }' \
    "$folder/runs.txt" | sort -k3,3nr -k1,1 >"$folder/rows.txt"
{
    printf '%-30s %4s %8s %11s\n' program runs failures 'longest, s'
    cat "$folder/rows.txt"
} >"$folder/table.txt"
rm -f "$folder/rows.txt"
awk 'NR == 1 || $3 > 0' "$folder/table.txt" | awk '{ line[NR] = $0 } END { if (NR > 1) for (i = 1; i <= NR; i++) print line[i] }'
awk -v programs=$# -v wanted=$(($# * runs)) -v table="$folder/table.txt" '{ all++; failures += $4; if ($4) failed[$1] = 1 }
    END {
        count = 0
        for (name in failed) count++
        printf "%d test programs, %d runs beside two busy loops: %d failures in %d programs (all of them: %s)\n",
            programs, all, failures, count, table
        if (all != wanted) printf "Not all of the %d runs were made\n", wanted
        exit failures > 0 || all != wanted
    }' "$folder/runs.txt"
