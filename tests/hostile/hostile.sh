#!/bin/sh
# Mistreats the programs at random for a bounded time, and counts how often they break a promise of the documentation.
# usage: tests/hostile/hostile.sh BUILD [AREA...]        every area, or these
#        tests/hostile/hostile.sh BUILD AREA CASE        this case of HOSTILE_SEED again
# HOSTILE_SECONDS: for all areas (700); each area has its share, and a least number of cases. HOSTILE_SEED: of all cases.
# HOSTILE_MOST: failures of an area after which it ends (20).
# BUILD/hostile gets failures.txt, a line per failure with the command that repeats it, and a folder of each case that failed.
set -u
export LC_ALL=C
here=$(dirname "$0")

# area:share of the time, in percent
areas='kills:12 restarts:7 mismatches:11 launchers:7 settings:3 attacks:13 damaged:11 options:9 files:5 signals:6 grids:8 elastic:8'

[ $# -ge 1 ] && [ -x "$1/ddp_train" ] || { echo 'usage: tests/hostile/hostile.sh BUILD [AREA... | AREA CASE]' >&2; exit 2; }
build=$(cd "$1" && pwd) && tree=$(cd "$here/../.." && pwd) || exit 1
shift
seconds=${HOSTILE_SECONDS:-700} seed=${HOSTILE_SEED:-$(($(date +%s) % 1000000))}
case $seconds in '' | *[!0-9]* | 0?*) echo "HOSTILE_SECONDS is '$seconds'; it takes a number" >&2; exit 2 ;; esac
case $seed in '' | *[!0-9]* | 0?* | ??????????*) echo "HOSTILE_SEED is '$seed'; it takes a number below a thousand million" >&2; exit 2 ;; esac
only=''
case ${2:-} in '' | *[!0-9]*) ;; *) only=$2; set -- "$1" ;; esac
wanted=" $* "
for area in "$@"; do
    case " $areas" in *" $area:"*) ;; *) echo "there is no area '$area'; there are: $(echo "$areas" | sed 's/:[0-9]*//g')" >&2; exit 2 ;; esac
done

folder=$build/hostile
rm -rf "$folder" && mkdir -p "$folder" && : >"$folder/failures.txt" || exit 1
. "$here/case.sh"

# The first signal ends this script and the case's processes; an area's own clean-up is always done.
trap 'end_case; clean_up' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# One case: a folder of its own, random numbers of its own, and no remains.
one_case() { # area, number of the area, case
    begin_case "$1" "$2" "$3"
    "$1_case"
    finish_case
}

one_area() { # area, its number, seconds
    least=8 notes=''
    . "$here/$1.sh"
    begin_case "$1" "$2" 0
    "$1_begin"
    finish_case # its preparation must work
    cases=0 failures=$failed_cases until=$(($(date +%s) + $3)) began=$(date +%s)
    if [ -n "$only" ]; then
        one_case "$1" "$2" "$only"
        cases=1 failures=$((failures + failed_cases))
    else
        while [ $failures -lt "${HOSTILE_MOST:-20}" ] && { [ $cases -lt $least ] || [ "$(date +%s)" -lt $until ]; }; do
            cases=$((cases + 1))
            one_case "$1" "$2" $cases
            failures=$((failures + failed_cases))
        done
    fi
    clean_up
    printf '%-12s %6d %9d %8d   %s\n' "$1" $cases $failures $(($(date +%s) - began)) "$what$notes"
    all_cases=$((all_cases + cases)) all_failures=$((all_failures + failures))
}

echo "HOSTILE_SEED=$seed, $seconds s"
printf '%-12s %6s %9s %8s   %s\n' area cases failures seconds what
number=0 all_cases=0 all_failures=0
for row in $areas; do
    number=$((number + 1)) area=${row%:*}
    case $wanted in '  ' | *" $area "*) one_area "$area" $number $((seconds * ${row#*:} / 100)) ;; esac
done
printf '%-12s %6d %9d\n' all $all_cases $all_failures
[ $all_failures -eq 0 ] && exit 0
echo "failures, and how to repeat each ($folder/failures.txt):"
cat "$folder/failures.txt"
exit 1
