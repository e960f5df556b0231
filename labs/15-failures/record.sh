#!/bin/sh
# Causes six failures of the real programs, and records their output: one file for each, in a random order.
# usage: labs/15-failures/record.sh PROGRAMS OUT      PROGRAMS: the folder with ddprun and ddp_train. About fifteen seconds
#        labs/15-failures/record.sh PROGRAMS OUT WORD prints the recording of that failure, which it makes if there is none
# OUT/1.txt to 6.txt: the errors that the ranks and the launcher wrote to stderr, and the exit status; not the table of flight
# records, which would name the rank. OUT/key: "NUMBER: WORD RANK",
# the failure, and the rank that failed.
# Every rank must print its own lines. So ranks do not get LS_SAID_FD, by which the ranks of a launcher print equal lines
# only once.
set -u
if [ "${3:-}" ]; then
    [ -f "$2/key" ] || "$0" "$1" "$2" || exit 1
    cat "$2/$(sed -n "s/: $3 .*//p" "$2/key").txt"
    exit
fi
programs=$(realpath "$1") out=$2
ranks=4 timeout=2
mkdir -p "$out" && out=$(realpath "$out") || exit 1
work=$out/work
rm -rf "$work" "$out"/[1-6].txt "$out/key"
mkdir -p "$work" || exit 1

# start NAME RANK OPTIONS: a job, in the background, in which that rank gets these additional options. $job: its process.
start() {
    name=$1
    mkdir -p "$work/$name"
    # shellcheck disable=SC2016
    (
        FOLDER=$work/$name VICTIM=$2 OWN=$3 TRAIN=$programs/ddp_train "$programs/ddprun" --nproc-per-node $ranks --grace 1 \
            sh -c 'echo $$ >"$FOLDER/pid.$RANK"; [ "$RANK" = "$VICTIM" ] || OWN=
                exec env -u LS_SAID_FD "$TRAIN" --device-kind cpu --model mlp:784,64,10 --epochs 100000 --no-evaluate --quiet \
                    --timeout '$timeout' $OWN' >"$work/$name/out" 2>"$work/$name/err"
        echo "exit status $?" >>"$work/$name/err"
    ) &
    job=$!
}

# Waits until rank 0 has printed the end of an epoch, or the job has ended; at most twenty seconds. With --steps it would print that only
# at its end.
await_training() {
    tries=0
    until grep -q '^epoch' "$work/$name/out" || grep -q '^exit status' "$work/$name/err" || [ $((tries += 1)) -gt 200 ]; do sleep 0.1; done
}

# Waits until a process listens at the port; at most twenty seconds.
await_server() {
    tries=0
    until grep -q ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp || [ $((tries += 1)) -gt 200 ]; do sleep 0.1; done
}

signal() { kill "-$1" "$(cat "$work/$name/pid.$victim")"; }

# Starts a rank without a launcher: it serves the store itself, at a port.
by_hand() {
    timeout 20 env RANK=0 WORLD_SIZE=$ranks LOCAL_RANK=0 LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT="$1" LS_JOB_TOKEN="$2" \
        "$programs/ddp_train" --device-kind cpu --no-evaluate --quiet --timeout "$3" 2>&1 >"$work/port/out"
}

draw() { shuf -i "0-$(($1 - 1))" -n 1; }

record_killed() {
    start killed -1 '' && await_training && signal KILL
    wait $job
}

record_stopped() {
    start stopped -1 '' && await_training && signal STOP # the launcher kills it in the end
    wait $job
}

record_slow() {
    start slow -1 '' && await_training && signal STOP && sleep 3 && signal CONT
    wait $job
}

record_memory() {
    start memory "$victim" '--device-memory 100K'
    wait $job
}

record_mismatch() {
    start mismatch "$victim" '--lr 0.01'
    wait $job
}

# The first job waits for ranks that never arrive, and keeps its port meanwhile.
record_port() {
    mkdir -p "$work/port"
    port=$((20000 + $(draw 10000)))
    by_hand $port first 4 >/dev/null &
    first=$!
    await_server
    { by_hand $port second 1; echo "exit status $?"; } >"$work/port/err"
    wait $first
}

number=0
for scene in $(printf '%s\n' killed stopped slow memory mismatch port | shuf); do
    number=$((number + 1)) victim=$(draw $ranks)
    # the others are compared with rank 0, which serves the store
    [ $scene = mismatch ] && victim=$((1 + $(draw $((ranks - 1)))))
    [ $scene = port ] && victim=0
    record_$scene 2>/dev/null
    grep -E ': error: |^exit status ' "$work/$scene/err" >"$out/$number.txt" || exit 1
    echo "$number: $scene $victim" >>"$work/key"
done
mv "$work/key" "$out/key"
rm -rf "$work"
