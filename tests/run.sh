#!/bin/sh
# Runs test programs one after the other, each under a deadline, and ends with the counts and the list of skips. Fails if a
# program fails, runs out of time, or skips a test that tests/allowed_skips does not name.
# usage: tests/run.sh PROGRAM...     (LS_TEST_DEADLINE_S: seconds per program, 240)
set -u
export LC_ALL=C
deadline_s=${LS_TEST_DEADLINE_S:-240}
log=$(mktemp) || exit 1
skips=$(mktemp) || exit 1
trap 'rm -f "$log" "$skips"' EXIT
passed=0 failed=0 skipped=0 programs=0 broken=''

# the number in cmocka's closing line "[  $1  ] N test(s)"
count() { sed -n "s/^\[  *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" | tail -n 1; }

for program in "$@"; do
    programs=$((programs + 1))
    start=$(date +%s)
    timeout -k 10 "$deadline_s" "$program" >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(($(date +%s) - start))
    p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    p=${p:-0} f=${f:-0} s=${s:-0}
    verdict=ok
    if [ "$status" -ne 0 ] || [ "$f" -ne 0 ] || [ "$p" -eq 0 ]; then
        verdict=FAILED
        [ "$status" -eq 124 ] || [ "$status" -eq 137 ] && verdict="FAILED: no end within $deadline_s s"
        [ "$f" -gt 0 ] || f=1 # died before it could count
        broken="$broken $program"
        cat "$log"
    fi
    sed -n 's/^\[  SKIPPED \] \([^ ]*\)$/\1/p' "$log" | sort -u | sed "s|^|$(basename "$program") |" >>"$skips"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '  %-28s %4d passed %s%4d s  %s\n' "$(basename "$program")" "$p" "$([ "$s" -gt 0 ] && echo "$s skipped")" "$seconds" "$verdict"
done

[ -s "$skips" ] && { echo 'Skipped:'; sed 's/^/  /' "$skips"; }
unexpected=$(grep -vxFf tests/allowed_skips "$skips")
echo "$programs test programs:"
echo "$passed passed, $failed failed, $skipped skipped"
[ -n "$unexpected" ] && { echo "Not in tests/allowed_skips: $unexpected"; exit 1; }
[ -n "$broken" ] && { echo "Failed:$broken"; exit 1; }
exit 0
