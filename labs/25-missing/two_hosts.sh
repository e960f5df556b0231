#!/bin/sh
# One job on two hosts, ranks 0 and 1 on one and 2 and 3 on the other, each with its own launcher. Here both are this machine under two
# names (LS_HOST_IDENTITY); on two machines the commands are the same, with host 0's address for 127.0.0.1.
# usage: labs/25-missing/two_hosts.sh OUT          rank 2 leaves an all_reduce out in step 30
#        labs/25-missing/two_hosts.sh OUT lost     host 1's launcher is killed, and its ranks with it; the deadline is 100 s
# Prints the output of each launcher and its ranks. The programs are the reference's: $ORACLE, or a handout's reference/, or
# build/.
set -u
out=$1 what=${2:-skipped}
programs=${ORACLE:-build}
[ "${ORACLE:-}" ] || [ ! -d reference ] || programs=reference
mkdir -p "$out" && rm -f "$out"/said.[01] "$out"/flight-*.jsonl || exit 1
port=$(shuf -i 20000-29999 -n 1)

# launch HOST ARGUMENT...: that host's launcher, in the background.
launch() {
    host=$1
    shift
    LS_HOST_IDENTITY=$host LS_FLIGHT=$out timeout -k 1 200 "$programs/ddprun" --nnodes 2 --node-rank "$host" --master-addr 127.0.0.1 \
        --master-port "$port" --nproc-per-node 2 --grace 1 "$programs/who_hangs" "$@" >"$out/said.$host" 2>&1 &
}

if [ "$what" = lost ]; then
    launch 0 --steps 100000000 --timeout 100 --way alike --rank 63 # all-reduces only; there is no rank 63
    launch 1 --steps 100000000 --timeout 100 --way alike --rank 63
    sleep 3
    begun=$(date +%s)
    kill -KILL $(cat "/proc/$!/task/$!/children") # the child of `timeout`
    wait
    echo "host 0's job ended $(($(date +%s) - begun)) s after host 1"
else
    launch 0 --way alike --rank 2
    launch 1 --way alike --rank 2
    wait
fi
for host in 0 1; do sed "s/^/host $host: /" "$out/said.$host"; done
