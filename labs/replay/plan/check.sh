#!/bin/sh
# Compares the planner's order with the measured one: labs/replay/plan/check.sh BUILD [ROUNDS [MODELS]] (make plan-check)
#
# For deep, wide and gpt on 2 and 4 devices, a list of combinations is planned, and run in virtual time: devices take turns on one core, each
# thread's CPU time is recorded, and replay runs the tasks in parallel, as if each device had a core. So a busy machine disturbs little, and
# four devices do not need four cores. The node is this machine as build/calibrate measures it, with a core for each device.
#
# A pair of combinations counts if their runs do not overlap (the slowest of one is faster than the fastest of the other). It is ordered
# correctly if the plan has the same one first. With one round there is no spread, and all pairs count. The figures are in
# BUILD/results/plan_check.txt. PLAN_CHECK_QUICK=1: the node is that of calibrate --quick.
set -eu
build=$1
rounds=${2:-3}
models=${3:-deep wide gpt}
out=$build/results
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
mkdir -p "$out"

# node FROM N: the node with N devices, each with its own core, whose threads are awake. Each two of them have a link of
# their own: in virtual time copies of several devices do not share the memory's bandwidth.
node() {
    awk -v n="$2" '
        /"devices":\t[0-9]/ { sub(/[0-9]+/, n) }
        /"(product|memory)_crowding":/ { sub(/[0-9.]+,/, "1,") }
        /"hand_over_us":/ { sub(/[0-9.]+,/, "1,") }
        /"cores":\t/ { sub(/[0-9]+/, n) }
        /"links":\t/ { inside = 1 }
        inside && /"GBps"/ && rate == "" { rate = $2 }
        inside && /"latency_us"/ && latency == "" { latency = $2 }
        inside && /^\t\t}\],/ {
            printf "\t\"links\":\t["
            for (d = 0; d < n; d++)
                for (e = d + 1; e <= n; e++) # gpuN: the host
                    printf "%s{\"name\": \"memory%d-%d\", \"from\": \"gpu%d\", \"to\": \"%s\", \"GBps\": %s \"latency_us\": %s \"duplex\": true}", (d + e == 1 ? "" : ", "), d, e, d, (e < n ? "gpu" e : "host"), rate, latency
            print "],"
            inside = 0
            next
        }
        !inside' "$1" >"$work/node_$2.json"
}

# measure MODEL N BATCH DATA PROGRAM OPTIONS...: a step's time in ms, in virtual time.
measure() {
    model=$1 n=$2 batch=$3 data=$4 program=$5
    shift 5
    devices=--spawn
    [ "$program" = dp_train ] && devices=--devices
    rm -rf "$work/trace"
    "$build/$program" $devices "$n" --virtual-time --trace "$work/trace" --trace-steps 3 --steps 13 --model "$model" --data "$data" \
        --batch-size "$batch" --optimizer adam --workers 0 --no-evaluate --quiet --device-kind cpu "$@" >/dev/null
    "$build/replay" --trace "$work/trace" --as-recorded | awk '$1 == "step," { print $4 }'
}

# The combinations of N devices that are run.
combinations() {
    cat <<END
dp_train
ddp_train
ddp_train --shard-state 1
ddp_train --shard-state 3
ddp_train --checkpoint-activations sqrt
ddp_train --accumulate 4
ddp_train --tensor $1
ddp_train --pipeline $1 --accumulate $((4 * $1))
END
}

# check MODEL N BATCH DATA NODE: its runs, a line each in runs.csv.
check() {
    model=$1 n=$2 batch=$3 data=$4 from=$5
    node "$from" "$n"
    # a pipeline of wide has at most two stages; combinations that do not fit are left out
    "$build/plan" --model "$model" --data "$data" --devices "$n" --memory 1000G --batch "$batch" --optimizer adam --precision fp32 \
        --node "$work/node_$n.json" --out "$work" --quiet >/dev/null
    combinations "$n" >"$work/combinations"
    for round in $(seq "$rounds"); do
        while read -r program options; do
            planned=$(awk -F'"' -v p="$program" -v o="$options" '$6 == p && $8 == o && $10 == "fits" { split($11, f, ","); print f[2] }' "$work/plan.csv")
            [ -n "$planned" ] || continue
            # shellcheck disable=SC2086 # options are words
            ms=$(measure "$model" "$n" "$batch" "$data" "$program" $options)
            [ -n "$ms" ] || { echo "plan-check: $program $options on $n devices has no step time" >&2; exit 1; }
            echo "$model,$n,$round,$program${options:+ }$options,$planned,$ms"
        done <"$work/combinations"
    done >>"$work/runs.csv"
}

# Medians, and the pairs that are ordered correctly.
judge() {
    sort -t, -k1,1 -k2,2n -k5,5g "$1" | awk -F, '
        function median(list, count,   i, j, t) {
            for (i = 1; i <= count; i++) for (j = i + 1; j <= count; j++) if (list[j] < list[i]) { t = list[i]; list[i] = list[j]; list[j] = t }
            return (list[int((count + 1) / 2)] + list[int(count / 2) + 1]) / 2
        }
        function finish(   i, j, k, values, count, apart, right, wrong, line) {
            if (!rows) return
            printf "\n%s on %d devices: planned (replayed) and measured (virtual time, median and extremes of %d runs), ms a step\n\n", model, n, runs[1]
            for (i = 1; i <= rows; i++) {
                for (k = 1; k <= runs[i]; k++) values[k] = ms[i, k]
                low[i] = high[i] = 0 + ms[i, 1]
                for (k = 2; k <= runs[i]; k++) { if (ms[i, k] < low[i]) low[i] = 0 + ms[i, k]; if (ms[i, k] > high[i]) high[i] = 0 + ms[i, k] }
                printf "%-45s %9.2f %9.2f  (%.2f to %.2f)\n", name[i], planned[i], median(values, runs[i]), low[i], high[i]
            }
            for (i = 1; i <= rows; i++) for (j = i + 1; j <= rows; j++) {
                if (high[i] >= low[j] && high[j] >= low[i]) continue
                apart++
                if ((planned[i] < planned[j]) == (high[i] < low[j])) right++; else line = line sprintf("wrong: %s before %s\n", name[i], name[j])
            }
            printf "pairs that lie apart: %d of %d, %d of them ordered rightly\n%s", apart, rows * (rows - 1) / 2, right, line
            all += apart; good += right; rows = 0
        }
        $1 != model || $2 != n { finish(); model = $1; n = $2; split("", runs) }
        { if (!rows || name[rows] != $4) { name[++rows] = $4; planned[rows] = $5; runs[rows] = 0 } ms[rows, ++runs[rows]] = $6 }
        END { finish(); printf "\nall: %d of %d pairs that lie apart are ordered rightly\n", good, all }'
}

quick=${PLAN_CHECK_QUICK:+--quick}
for flag in '' --beyond-cache; do
    # shellcheck disable=SC2086 # flags or nothing
    "$build/calibrate" $quick $flag --quiet --out "$work/machine$flag.json" >/dev/null
done
: >"$work/runs.csv"
for n in 2 4; do
    for model in $models; do
        case $model in
        gpt) check gpt "$n" 16 sums:0 "$work/machine.json" ;; # its data fits into caches
        wide) check wide "$n" 64 random:0 "$work/machine--beyond-cache.json" ;;
        *) check "$model" "$n" 128 random:0 "$work/machine--beyond-cache.json" ;;
        esac
    done
done
judge "$work/runs.csv" | tee "$out/plan_check.txt"
cp "$work/runs.csv" "$out/plan_check.csv"
