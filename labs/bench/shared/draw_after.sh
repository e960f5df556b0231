#!/bin/sh
# Runs a bench and draws from its CSV if the bench has written it, even if the bench then fails because results disagree.
# usage: labs/bench/shared/draw_after.sh RESULTS NAME COMMAND...      (NAME: of the CSV in RESULTS; exit status: the command's)
set -u
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec "$(dirname "$0")/stoppable.sh" "$0" "$@"
[ $# -gt 2 ] || { echo "usage: $0 RESULTS NAME COMMAND..." >&2; exit 2; }
results=$1 name=$2 csv=$1/$2.csv
shift 2

draw() { LC_ALL=C.UTF-8 gnuplot -c "plots/$1.gp" "$csv" "$results" 2>&1; }

# The drawing script prints the names of pictures.
pictures() {
    case $name in
    dp_vs_ddp)
        drawn=$(draw dp_vs_ddp) || { printf '%s\n' "$drawn"; return 1; }
        printf 'Pictures (.svg beside each): %s\n' "$(printf '%s\n' "$drawn" | grep '\.png$' | paste -sd' ' -)"
        echo "More pictures, by make plots: $results/gantt.png (a step as bars), replay_phases.png, overlap_bucket.png (buckets), memory.png"
        ;;
    memory)
        drawn=$(draw memory_techniques) || { printf '%s\n' "$drawn"; return 1; }
        printf 'Picture (.svg beside it): %s\n' "$(printf '%s\n' "$drawn" | grep '\.png$')"
        ;;
    gpt)
        drawn=$(draw gpt_attention) || { printf '%s\n' "$drawn"; return 1; }
        printf 'Picture (.svg beside it): %s\n' "$(printf '%s\n' "$drawn" | grep '\.png$')"
        ;;
    launch)
        drawn=$(draw launch) || { printf '%s\n' "$drawn"; return 1; }
        printf 'Picture (.svg beside it): %s\n' "$(printf '%s\n' "$drawn" | grep '\.png$')"
        ;;
    comm)
        printf '\nwritten:\n%s\n%s\n' "$csv" "$results/comm.json"
        draw allreduce
        ;;
    tables)
        printf '\nwritten:\n%s\n%s\n' "$csv" "$results/tables.md"
        for script in plots/tables_*.gp; do draw "$(basename "$script" .gp)" || return 1; done
        ;;
    esac
}

written() { cksum "$csv" 2>/dev/null; }

before=$(written)
"$@"
status=$?
if [ "$before" != "$(written)" ]; then pictures || exit 1; fi
exit $status
