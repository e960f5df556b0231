#!/bin/sh
# Runs jobs of the real programs that hang, and keeps their flight records.
# usage: labs/25-missing/record.sh OUT                     six hangs, in a random order and of random ranks; takes about three seconds
#        labs/25-missing/record.sh OUT WAY RANK [STEPS]    that one, as OUT/WAY.jsonl (build/who_hangs --help lists the ways)
# OUT/1.jsonl to 6.jsonl: the records. OUT/1.txt to 6.txt: the last operations of each rank, as build/flight shows them, without its diagnosis. OUT/key: "NUMBER: WAY RANK" of each.
# The programs are the reference's: $ORACLE, or a handout's reference/, or build/.
set -u
out=$1 ranks=4
programs=${ORACLE:-build}
[ "${ORACLE:-}" ] || [ ! -d reference ] || programs=reference
mkdir -p "$out" || exit 1

# record WAY RANK STEPS TO. Streams run in threads, so that a rank runs ahead of its stream, as on a GPU, and the record has enqueued operations.
record() {
    folder=$out/$1.work
    rm -rf "$folder" && mkdir "$folder" || exit 1
    LS_CPU_STREAMS=threads LS_FLIGHT=$folder timeout 60 "$programs/ddprun" --nproc-per-node $ranks --grace 1 \
        "$programs/who_hangs" --way "$1" --rank "$2" --steps "$3" >"$folder/out" 2>&1
    mv "$folder"/*.jsonl "$4" || { cat "$folder/out" >&2; exit 1; }
    rm -r "$folder"
}

[ $# -eq 1 ] || { record "$2" "$3" "${4:-40}" "$out/$2.jsonl"; exit; }

rm -f "$out"/[1-6].txt "$out"/[1-6].jsonl "$out/key" "$out/key.new"
number=0 jobs=''
for way in $(printf '%s\n' skipped extra order count stopped branched | shuf); do
    number=$((number + 1)) rank=$(shuf -i 0-$((ranks - 1)) -n 1)
    echo "$number: $way $rank" >>"$out/key.new"
    record "$way" "$rank" 40 "$out/$number.jsonl" &
    jobs="$jobs $!"
done
for job in $jobs; do wait "$job" || exit 1; done
for number in 1 2 3 4 5 6; do
    "$programs/flight" --last 8 "$out/$number.jsonl" | sed -n '/, the last of its operations/,$p' >"$out/$number.txt"
done
mv "$out/key.new" "$out/key"
