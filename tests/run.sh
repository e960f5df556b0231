#!/bin/sh
# Runs test programs, each under a deadline, several at a time, as soon as their names arrive; those of
# tests/mostly_waiting run three at a time in addition. Prints its progress in one line, the whole output of failed
# programs, and at the end the slowest programs, those with most CPU time, the skips and the counts. Fails if a program
# fails, times out, or skips a test that tests/allowed_skips does not name. In a handout (labs/course/handout.sh) a
# program that fails because it called a function that a lab leaves to the student is "not written yet": it is counted,
# but is not a failure.
# usage: tests/run.sh COUNT <NAMES      (NAMES: COUNT programs, one a line; the line built-a-file for each built file;
#        the line build-failed if no more programs follow)
#        LS_TEST_DEADLINE_S: seconds per program, 240; LS_TEST_JOBS: programs at a time, one more than cores; V=1: a line for each program;
#        LS_TEST_TIMES: a file for the times, a line a program: seconds of CPU, seconds, its name
set -u
export LC_ALL=C
# Devices use one anyway; in tests that call kernels themselves, oneDNN's other threads would mostly spin.
export OMP_NUM_THREADS=1
# Ranks of several tests wait at the same time: a rank that spins for long would keep others from running.
export LS_SHARED_CORES=1
deadline_s=${LS_TEST_DEADLINE_S:-240}
clear=''
[ -t 1 ] && clear=$(printf '\r\033[K')

# --- one program: run.sh --one FOLDER PROGRAM -------------------------------------------------------------------------

# Whether the program, or one that it started, called a lab's missing function, in a tree that may lack them.
is_unwritten() { [ -f labs/handout.mk ] && [ -s "$LS_TODO_LOG" ]; }

# Prints the result in one piece, and writes a line for the counts: passed failed skipped program seconds unwritten
# cpu-seconds
run_one() {
    folder=$1 program=$2 name=${2##*/}
    log=$folder/$name.log
    export LS_TODO_LOG=$folder/$name.todo
    start=$(date +%s%N)
    timeout -k 10 "$deadline_s" "$program" >"$log" 2>&1 </dev/null
    status=$?
    times >"$log.times"
    tenths=$((($(date +%s%N) - start + 50000000) / 100000000))
    seconds=$((tenths / 10)).$((tenths % 10))
    # cmocka's closing lines: "[  PASSED  ] N test(s).", and the names of skipped tests; the second line of times: the
    # children's
    read -r p f s cpu <<-counted
	$(awk -v name="$name" -v skips="$folder/skips" '
	    /^\[ +(PASSED|FAILED|SKIPPED) +\] [0-9]+ test\(s\)/ { count[$2] = $4 }
	    /^\[  SKIPPED \] [^ ]+$/ && !seen[$4]++ { print name, $4 >>skips }
	    FILENAME ~ /times$/ && FNR == 2 { split($0, part, /[ms ]+/); cpu = 60 * (part[1] + part[3]) + part[2] + part[4] }
	    END { print count["PASSED"] + 0, count["FAILED"] + 0, count["SKIPPED"] + 0, cpu + 0 }' "$log" "$log.times")
	counted
    verdict=ok said=''
    unwritten=0
    if { [ "$status" -ne 0 ] || [ "$f" -ne 0 ] || [ "$p" -eq 0 ]; } && is_unwritten; then
        f=0 unwritten=1 verdict='not written yet'
    elif [ "$status" -ne 0 ] || [ "$f" -ne 0 ] || [ "$p" -eq 0 ]; then
        verdict=FAILED
        [ "$status" -gt 128 ] && verdict="FAILED: killed by signal $((status - 128))"
        [ "${seconds%.*}" -ge "$deadline_s" ] && verdict="FAILED: no end within $deadline_s s"
        [ "$f" -gt 0 ] || f=1 # died before it could count
        said=$(cat "$log")
    fi
    [ "$verdict" = ok ] && [ -z "${V:-}" ] || printf '%s%s  %-28s %4d passed %s%6s s  %s\n' "$clear" "${said:+$said
}" "$name" "$p" "$([ "$s" -gt 0 ] && echo "$s skipped")" "$seconds" "$verdict"
    echo "$p $f $s $program $seconds $unwritten $cpu" >>"$folder/counts"
}

if [ "${1:-}" = --one ]; then
    if [ "$3" = build-failed ]; then : >"$2/build-failed"; else run_one "$2" "$3"; fi
    exit 0
fi

# --- all of them ------------------------------------------------------------------------------------------------------

# tests/cuda_on_cpu fills each byte of new memory: a workspace of 32 MiB for each device would take longer than its
# test.
export CUBLAS_WORKSPACE_CONFIG="${CUBLAS_WORKSPACE_CONFIG-:64:1}"

# Tests must not use the job server of make, whose pipe has the numbers at the end of this variable.
for pipe in $(printf '%s' "${MAKEFLAGS:-}" | sed -n 's/.*--jobserver-[a-z]*=\([0-9]\),\([0-9]\).*/\1 \2/p'); do eval "exec $pipe<&-"; done
unset MAKEFLAGS MFLAGS MAKELEVEL

all=${1:?how many programs} began=$(date +%s)
[ "$all" -gt 0 ] || { echo 'There are no such tests' >&2; exit 1; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
: >"$folder/counts"
: >"$folder/skips"
: >"$folder/built"

progress() {
    awk -v all="$all" -v seconds=$(($(date +%s) - began)) -v built=$(wc -l <"$folder/built") '{ if ($2 > 0) failed++ }
        END { printf "  %s%d of %d test programs done, %d failed, %d s", built ? built " files built, " : "", NR, all, failed, seconds }' "$folder/counts"
}

# Two queues: the programs that mostly wait (for four fifths of their time) run in addition to one per core, so that
# they leave no core idle.
mkfifo "$folder/working" "$folder/waiting"
mostly_waiting=" $(tr '\n' ' ' <tests/mostly_waiting) "
exec 7<&0 # a background job's own standard input is /dev/null
while read -r program; do
    if [ "$program" = built-a-file ]; then
        echo >>"$folder/built"
    else
        case $mostly_waiting in *" ${program##*/} "*) echo "$program" >&8 ;; *) echo "$program" >&9 ;; esac
    fi
done <&7 8>"$folder/waiting" 9>"$folder/working" &
(
    xargs -r -P 3 -n 1 "$0" --one "$folder" <"$folder/waiting" &
    xargs -r -P "${LS_TEST_JOBS:-$(($(nproc 2>/dev/null || echo 1) + 1))}" -n 1 "$0" --one "$folder" <"$folder/working"
    wait
) &
runner=$! tenths=0
while kill -0 $runner 2>/dev/null; do
    if [ -n "$clear" ] && [ $((tenths % 10)) -eq 0 ]; then printf '%s%s' "$clear" "$(progress)"; fi
    if [ -z "$clear" ] && [ "$tenths" -gt 0 ] && [ $((tenths % 150)) -eq 0 ]; then echo "$(progress)"; fi
    sleep 0.2
    tenths=$((tenths + 2))
done
wait $runner
printf '%s' "$clear"
[ -e "$folder/build-failed" ] && { echo 'Not everything could be built: see above'; exit 1; }

echo 'Slowest:'
sort -k5 -rn "$folder/counts" | head -n 5 | awk '{ sub(/.*\//, "", $4); printf "  %-28s %6s s\n", $4, $5 }'
sort -k7 -rn "$folder/counts" | awk '{ sub(/.*\//, "", $4); sum += $7; if (NR <= 5) most = most (NR > 1 ? ", " : "") $4 " " $7 }
    END { printf "Most CPU seconds: %s; all: %d\n", most, sum }'
[ -z "${LS_TEST_TIMES:-}" ] || sort -k7 -rn "$folder/counts" | awk '{ sub(/.*\//, "", $4); print $7, $5, $4 }' >"$LS_TEST_TIMES"
[ -s "$folder/skips" ] && { echo 'Skipped:'; sed 's/^/  /' "$folder/skips"; }
unexpected=$(grep -vxFf tests/allowed_skips "$folder/skips")
awk -v programs="$all" '{ passed += $1; failed += $2; skipped += $3; unwritten += $6 }
    END {
        printf "%d test programs:\n%d passed, %d failed, %d skipped\n", programs, passed, failed, skipped
        if (unwritten) printf "%d programs came to a function that is not written yet: make grade\n", unwritten
    }' "$folder/counts"
[ "$(wc -l <"$folder/counts")" -eq "$all" ] || { echo 'Not all of them ran'; exit 1; }
[ -n "$unexpected" ] && { echo "Not in tests/allowed_skips: $unexpected"; exit 1; }
broken=$(awk '$2 > 0 { printf " %s", $4 }' "$folder/counts")
[ -n "$broken" ] && { echo "Failed:$broken"; exit 1; }
exit 0
