#!/bin/sh
# Runs a job of four ranks that loses one and continues. Prints its output, the steps before the loss, the step from which it continues,
# and how often it has trained on each sample.
# usage: labs/25-missing/lose.sh OUT [RANK]     RANK, by default 3, is killed. The programs are the reference's: $ORACLE, or a handout's
#                                               reference/, or build/
set -u
out=$1 victim=${2:-3}
programs=${ORACLE:-build}
[ "${ORACLE:-}" ] || [ ! -d reference ] || programs=reference
epochs=300
mkdir -p "$out" && rm -f "$out/metrics.jsonl" "$out/weights" && "$programs/visits" --write "$out/samples" || exit 1
"$programs/ddp_train" --device-kind cpu --spawn 4 --elastic 2:4 --timeout 20 --model mlp:784,10 --batch-size 60 --epochs $epochs \
    --data "$out/samples" --init "$out/samples/zeros" --normalize none --optimizer sgd --momentum 0 --lr 0.0001 --no-evaluate --quiet \
    --metrics "$out/metrics.jsonl" --save-weights "$out/weights" >"$out/out" 2>"$out/err" &
job=$!

steps() { grep -c '"step":' "$out/metrics.jsonl" 2>/dev/null; }

# The process of that rank, one of the job's children; prints nothing if there is none.
process_of() {
    tr ' ' '\n' <"/proc/$job/task/$job/children" | while read -r child; do
        if tr '\0' '\n' <"/proc/$child/environ" | grep -qx "RANK=$1"; then echo "$child"; fi
    done 2>/dev/null
}

# Waits until the rank exists and the job has done some steps, or the job has ended; then the job's output gives the
# reason.
process=''
until [ "$process" ] && [ "$(steps)" -gt 5 ] 2>/dev/null; do
    sleep 0.02
    kill -0 $job 2>/dev/null || break
    [ "$process" ] || process=$(process_of "$victim")
done
done_before=$(steps)
[ -z "$process" ] || kill -KILL "$process"
wait $job
status=$?
cat "$out/err"
[ $status -eq 0 ] || exit $status
echo "steps done before: $done_before at least; gone on from: $(sed -n 's/.* on from step \([0-9]*\).*/\1/p' "$out/err")"
"$programs/visits" "$out/weights" | sed "s/times/times in $epochs epochs/"
