#!/bin/sh
# `make gpu-check`: the tests that can run on a real GPU, there; compute-sanitizer over the short ones; then the measurements.
# usage: labs/gpu_check/gpu_check.sh BUILD TEST...
# The tests open real GPUs because LS_PLUGINS names the real plug-ins. Exit status 0 only if all of it ran and passed.
set -u
export LC_ALL=C
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec "$(dirname "$0")/../bench_shared/stoppable.sh" "$0" "$@"
build=$(cd "$1" && pwd) || exit 1
shift
"$build/gpu_check" --find || exit 1
export LS_PLUGINS="$build/lib"
results=$build/results
mkdir -p "$results"
said=$results/gpu_check_tests.tsv
: >"$said"

# the number in cmocka's closing line "[  $1  ] N test(s)", 0 without one
count() { sed -n "s/^\[  *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$2" | tail -n 1 | grep . || echo 0; }

# note NAME STATUS LOG: one line of the file that gpu_check --tests reads. What was skipped did not run, and is not a pass.
note() {
    passed=$(count PASSED "$3") skipped=$(count SKIPPED "$3")
    if [ "$2" -ne 0 ] || [ "$passed" -eq 0 ]; then
        printf '%s\tfailed\texit status %s; %s\n' "$1" "$2" "$(tail -n 1 "$3" | tr '\t' ' ' | cut -c1-100)" >>"$said"
        cat "$3"
    elif [ "$skipped" -gt 0 ]; then
        printf '%s\tnot run\t%s tests passed, %s were left out for want of GPUs\n' "$1" "$passed" "$skipped" >>"$said"
    else
        printf '%s\tpassed\t%s tests\n' "$1" "$passed" >>"$said"
    fi
}

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
for test in "$@"; do
    name=$(basename "$test")
    if readelf -d "$test" | grep -q libcuda_on_cpu; then
        echo "$name is linked with the CPU's CUDA and would test that: it does not belong into GPU_TESTS" >&2
        exit 1
    fi
    timeout --foreground -k 10 300 "$test" >"$log" 2>&1 </dev/null
    note "$name" $? "$log"
    for tool in memcheck racecheck; do
        # Whole trainings take hours under a sanitizer: only the kernels' own tests. Calls that answer "not ready" are no errors.
        case $name in *training* | *modes* | *programs*) continue ;; esac
        if command -v compute-sanitizer >/dev/null; then
            timeout --foreground -k 10 900 compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 "$test" >"$log" 2>&1 </dev/null
            note "$name, compute-sanitizer $tool" $? "$log"
        else
            printf '%s, compute-sanitizer %s\tnot run\tcompute-sanitizer is not in PATH\n' "$name" "$tool" >>"$said"
        fi
    done
done
"$build/gpu_check" --tests="$said" --out="$results"
