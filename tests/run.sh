#!/bin/sh
# Runs test programs, each under a deadline, and ends with the counts and the list of skips. Fails if a program fails,
# runs out of time, or skips a test that tests/allowed_skips does not name.
# usage: tests/run.sh PROGRAM...     (LS_TEST_DEADLINE_S: seconds per program, 240; LS_TEST_JOBS: programs at a time, 1)
set -u
export LC_ALL=C
deadline_s=${LS_TEST_DEADLINE_S:-240}

# --- one program: run.sh --one FOLDER PROGRAM -------------------------------------------------------------------------

# the number in cmocka's closing line "[  $1  ] N test(s)"
count() { sed -n "s/^\[  *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" | tail -n 1; }

# Says in one piece how it went, and leaves a line for the counts: passed failed skipped program
run_one() {
    folder=$1 program=$2 name=$(basename "$2")
    log=$folder/$$.log
    start=$(date +%s)
    timeout -k 10 "$deadline_s" "$program" >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(($(date +%s) - start))
    p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    p=${p:-0} f=${f:-0} s=${s:-0}
    verdict=ok said=''
    if [ "$status" -ne 0 ] || [ "$f" -ne 0 ] || [ "$p" -eq 0 ]; then
        verdict=FAILED
        [ "$status" -gt 128 ] && verdict="FAILED: killed by signal $((status - 128))"
        [ "$seconds" -ge "$deadline_s" ] && verdict="FAILED: no end within $deadline_s s"
        [ "$f" -gt 0 ] || f=1 # died before it could count
        said=$(cat "$log")
    fi
    sed -n 's/^\[  SKIPPED \] \([^ ]*\)$/\1/p' "$log" | sort -u | sed "s|^|$name |" >>"$folder/skips"
    echo "$p $f $s $program" >>"$folder/counts"
    printf '%s  %-28s %4d passed %s%4d s  %s\n' "${said:+$said
}" "$name" "$p" "$([ "$s" -gt 0 ] && echo "$s skipped")" "$seconds" "$verdict"
}

if [ "${1:-}" = --one ]; then
    run_one "$2" "$3"
    exit 0
fi

# --- all of them ------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || { echo 'There are no such tests' >&2; exit 1; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
: >"$folder/counts"
: >"$folder/skips"
printf '%s\n' "$@" | xargs -P "${LS_TEST_JOBS:-1}" -n 1 "$0" --one "$folder"

[ -s "$folder/skips" ] && { echo 'Skipped:'; sed 's/^/  /' "$folder/skips"; }
unexpected=$(grep -vxFf tests/allowed_skips "$folder/skips")
awk -v programs=$# '{ passed += $1; failed += $2; skipped += $3 }
    END { printf "%d test programs:\n%d passed, %d failed, %d skipped\n", programs, passed, failed, skipped }' "$folder/counts"
[ "$(wc -l <"$folder/counts")" -eq $# ] || { echo 'Not all of them ran'; exit 1; }
[ -n "$unexpected" ] && { echo "Not in tests/allowed_skips: $unexpected"; exit 1; }
broken=$(awk '$2 > 0 { printf " %s", $4 }' "$folder/counts")
[ -n "$broken" ] && { echo "Failed:$broken"; exit 1; }
exit 0
