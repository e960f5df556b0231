#!/bin/sh
# The claims of the course's notes (docs/published.md#the-course), each beside a figure of ours that decides it: `make claims`.
#
# A claim is a range that our figure must lie in, or several. No verdict is stored here: `holds` compares figures that the programs have just
# printed. A figure that is missing or not a number is an error, not a verdict. Takes about ten seconds on two cores.
# usage: labs/bench/claims/claims.sh BUILD_FOLDER [PART...]      (gradients replicas speedups replays rates entries; all of them)
# Exit status: 0 every claim was judged, whatever the verdicts; 1 a program failed, or its figures were not found.
set -u
export LC_ALL=C
[ $# -ge 1 ] || { echo "usage: $0 BUILD_FOLDER [PART...]" >&2; exit 2; }
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec "$(dirname "$0")/../shared/stoppable.sh" "$0" "$@"
build=$1
shift
[ $# -gt 0 ] || set -- gradients replicas speedups replays rates entries
for part; do
    case $part in gradients | replicas | speedups | replays | rates | entries) ;; *) echo "claims: there is no part '$part'" >&2; exit 2 ;; esac
done
fail() { echo "claims: $*" >&2; exit 1; }
for program in dp_train replay tables; do [ -x "$build/$program" ] || fail "there is no $build/$program; run make first"; done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP

# run COMMAND...: runs one of our programs; its output goes to $folder/out
run() {
    program=$1
    shift
    "$build/$program" "$@" >"$folder/out" 2>"$folder/err" </dev/null || { cat "$folder/err" >&2; fail "$program failed: $program $*"; }
}

# holds LEAST FIGURE MOST...: whether each figure lies between LEAST and MOST, both included. Status 2 if one is not a number.
holds() {
    awk 'BEGIN {
        for (i = 1; i < ARGC; i++) if (ARGV[i] !~ /^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$/) exit 2
        for (i = 1; i < ARGC; i += 3) if (ARGV[i + 1] + 0 < ARGV[i] + 0 || ARGV[i + 1] + 0 > ARGV[i + 2] + 0) exit 1
    }' "$@"
}

# judge CLAIM HOW OURS BY LEAST FIGURE MOST...: a line of the table
judge() {
    claim=$1 how=$2 ours=$3 by=$4
    shift 4
    holds "$@"
    case $? in
    0) verdict=confirmed ;;
    1) verdict=refuted ;;
    *) fail "no figure for the claim '$claim' ($*)" ;;
    esac
    printf '%-52s %-9s  %-8s  %-46s [%s]\n' "$claim" "$verdict" "$how" "$ours" "$by"
}

# column FILE NAME CONDITION: the column's value in the first row that meets the condition ("mode=DDP|n=8"). Commas within quotes are read as
# semicolons.
column() {
    awk -v wanted="$2" -v condition="$3" '
        { parts = split($0, part, "\""); line = ""
          for (i = 1; i <= parts; i++) { if (i % 2 == 0) gsub(/,/, ";", part[i]); line = line part[i] }
          count = split(line, cell, ",") }
        NR == 1 { for (i = 1; i <= count; i++) at[cell[i]] = i; pairs = split(condition, pair, "|"); next }
        { for (i = 1; i <= pairs; i++) { split(pair[i], word, "="); if (cell[at[word[1]]] != word[2]) next }
          print cell[at[wanted]]; exit }' "$1"
}

middle() { sort -n "$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
least() { sort -n "$1" | head -n 1; }
most() { sort -n "$1" | tail -n 1; }
round() { awk -v x="$1" -v digits="$2" 'BEGIN { printf "%.*f", digits, x }'; }
percent() { awk -v x="$1" 'BEGIN { printf "%.1f %%", 100 * x }'; }

# --- DP ---

# The bytes that device 0 sends in one phase of a step of two devices.
from_first() {
    awk -v phase="\"phase\": \"$1\"" 'index($0, phase) && /"kind": "copy"/ && /"from": 0,/ && /"to": 1,/ {
        sub(/.*"bytes": /, ""); sum += $0 + 0 } END { print sum + 0 }' "$folder/trace/rank_0.pt.trace.json"
}

claim_gradients() {
    run dp_train --devices 2 --steps 11 --trace-steps 1 --no-evaluate --trace "$folder/trace" --quiet
    gradients=$(from_first reduce) parameters=$(from_first replicate)
    [ "$parameters" -gt 0 ] || fail 'the trace of dp_train has no copies of parameters'
    judge "DP broadcasts gradients from GPU 0" measured "$gradients bytes of them, $parameters of parameters" a 1 "$gradients" 1e18
}

# peak KEY DEVICE: the summary's bytes, in GiB
peak() {
    grep -o '"peak_bytes":{[^}]*}' "$folder/out" | sed -n "$(($2 + 1))s/.*\"$1\":\([0-9]*\).*/\1/p" | awk '{ print $1 / 1024 ^ 3 }'
}

claim_replicas() {
    run dp_train --device-kind meta --devices 4 --model mlp:784,27000,27000,27000,10 --steps 3 --quiet --summary -
    other=$(peak parameter 1)
    judge "DP: all replicas lie on GPU 0" counted \
        "one on GPU 1: $(round "$other" 1) GiB; peaks $(round "$(peak total 0)" 1) and $(round "$(peak total 1)" 1)" b 0 "$other" 0
}

# --- speed-ups and communication ---

# From the notes' own times: QUANTITY MODE N
own() { column "$folder/tables.csv" ours "table=2 $1|mode=$2|n=$3"; }

claim_speedups() {
    run tables --tables=2 --out "$folder"
    two=$(own speed-up 'DDP; the course' 2) four=$(own speed-up 'DDP; the course' 4) eight=$(own speed-up 'DDP; the course' 8)
    judge "DDP is 1.9, 3.7, 7.2 times as fast on 2, 4, 8 GPUs" computed \
        "its own times: $(round "$two" 2), $(round "$four" 2), $(round "$eight" 2)" c 1.85 "$two" 1.95 3.65 "$four" 3.75 7.15 "$eight" 7.25
    share=$(own 'T_N - T1 / N; of the step' 'DDP; the course' 8)
    judge "DDP: communication takes less than 10 % of a step" computed "its own times on 8 GPUs: $(percent "$share")" c 0 "$share" 0.1
}

# ddp PRECISION: sets $ms, a step on eight V100, and $communication, its share of communication
ddp() {
    run replay --node dgx1-v100 --workload resnet50 --mode ddp --batch 256 --n 8 --precision "$1" --quiet --out "$folder"
    ms=$(column "$folder/replay.csv" step_ms 'mode=DDP|n=8')
    communication=$(column "$folder/replay.csv" communication_share 'mode=DDP|n=8')
}

claim_replays() {
    ddp fp32
    fp32_ms=$ms
    judge "  the same, of ResNet-50 on 8 V100" replayed "$(percent "$communication")" d 0 "$communication" 0.1
    ddp fp16
    gain=$(awk -v a="$fp32_ms" -v b="$ms" 'BEGIN { print a / b }')
    judge "AMP is 1.5 to 2 times as fast" replayed "ResNet-50 on 8 V100: $(round "$gain" 2) times" d,e 1.5 "$gain" 2
}

# --- the learning rate ---

seeds='0 1 2 3 4 5 6'

# losses NAME OPTION...: the final losses of all seeds
losses() {
    name=$1
    shift
    : >"$folder/$name"
    for seed in $seeds; do
        run dp_train "$@" --optimizer sgd --lr 0.05 --epochs 10 --seed "$seed" --no-evaluate --quiet
        sed -n 's/^final loss \([0-9.]*\),.*/\1/p' "$folder/out" >>"$folder/$name"
    done
}

claim_rates() {
    losses small --devices 1 --batch-size 64
    losses kept --devices 4 --batch-size 256
    losses linear --devices 4 --batch-size 256 --lr-scale linear
    low=$(least "$folder/small") high=$(most "$folder/small") kept=$(middle "$folder/kept") linear=$(middle "$folder/linear")
    judge "4 times the batch: 4 times the learning rate" measured \
        "loss $(round "$linear" 2), not $(round "$kept" 2); before $(round "$low" 2) to $(round "$high" 2)" f,g \
        "$low" "$linear" "$high" "$high" "$kept" 1e18
}

# --- top-k compression ---

# The notes' two functions on 100 gradients, of which 1 % is sent: compressed = gradient x mask, the mask 1 where |gradient| reaches the k-th
# largest and 0 elsewhere; and back: compressed / mask. Prints the number of elements for which neither is different from 0.
zero_over_zero() {
    awk 'BEGIN {
        for (i = 1; i <= 100; i++) { g[i] = sin(i) / (1 + i % 7); size = g[i] < 0 ? -g[i] : g[i]; if (size > largest) largest = size }
        for (i = 1; i <= 100; i++) { size = g[i] < 0 ? -g[i] : g[i]; mask = size >= largest; lost += mask == 0 && g[i] * mask == 0 }
        print lost }'
}

claim_entries() {
    lost=$(zero_over_zero)
    judge "top-k: compressed / mask is the gradient again" computed "0 / 0, NaN, in $lost places of 100" h 0 "$lost" 0
}

printf '%-52s %-9s  %-8s  %-46s %s\n' 'the notes claim' 'it is' 'how' 'our figure' 'by'
for part; do "claim_$part" || exit 1; done
cat <<END

[a] build/dp_train --devices 2 --steps 11 --trace-steps 1 --no-evaluate --trace build/trace    phases reduce and replicate
[b] build/dp_train --device-kind meta --devices 4 --model mlp:784,27000,27000,27000,10 --steps 3
[c] make tables TABLES=2
[d] build/replay --node dgx1-v100 --workload resnet50 --mode ddp --batch 256 --n 8 --precision fp32    [e] with fp16
[f] build/dp_train --devices 4 --batch-size 256 --optimizer sgd --lr 0.05 --epochs 10    [g] with --lr-scale linear
    median final loss of $(echo "$seeds" | wc -w) seeds each; before: one device with a batch of 64, all seeds
[h] the notes' own functions, k = 1 of 100; ours: build/ddp_train --spawn 2 --compress topk:0.01    (ddp_procs/topk.c)
measured on this machine; computed from the notes' own times, or by their formula; counted on devices that compute nothing; replayed on a
model of a machine, the same everywhere
END
