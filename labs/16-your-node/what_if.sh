#!/bin/sh
# How much faster is a step if one figure of a node is twice as good? Replays a step with each figure changed in a copy of the node's file:
# rates doubled, times halved. labs/replay/nodes/README.md describes the figures. Some change together: all-reduce is bus_GBps and the times
# in all_reduce_us, launch is launch_us and lock_us, hand-over is hand_over_us and awake_us.
# usage: labs/16-your-node/what_if.sh NODE OPTION...    a node as build/replay takes it, and options of build/replay, with one number in --n
# REPLAY: the program. Otherwise it is build/labs/16/replay, which make lab LAB=16 links with your formulas, or build/replay before that
set -u
export LC_ALL=C # awk prints a decimal point
if [ -z "${REPLAY:-}" ]; then
    REPLAY=build/labs/16/replay
    [ -x "$REPLAY" ] || REPLAY=build/replay
fi
[ $# -ge 1 ] || { sed -n 's/^# usage: //p' "$0" >&2; exit 2; }
node=$1
shift
[ -f "$node" ] || node=labs/replay/nodes/$node.json
[ -f "$node" ] || { echo "what_if: there is no node $node" >&2; exit 2; }
changed=$(mktemp -d) || exit 1
trap 'rm -rf "$changed"' EXIT
trap 'exit 1' HUP INT TERM

# change FACTOR FIGURE...: prints the node's text with every occurrence of these figures multiplied
change() {
    awk -v figures="$*" '
        BEGIN { count = split(figures, name, " "); factor = name[1] }
        { for (i = 2; i <= count; i++) {
              done = ""; rest = $0
              while (match(rest, "\"" name[i] "\":[ \t]*[0-9][0-9.eE+-]*")) {
                  key = length(name[i]) + 3
                  done = done substr(rest, 1, RSTART + key - 1) sprintf(" %.10g", factor * substr(rest, RSTART + key, RLENGTH - key))
                  rest = substr(rest, RSTART + RLENGTH)
              }
              $0 = done rest
          }
          print }' <"$node"
}

# The rows [ranks, bytes, us] of all_reduce_us, with half the time.
halve_table() {
    awk '/"all_reduce_us"/ { table = 1 }
         { while (table && match($0, /, *[0-9][0-9.eE+-]*\]/)) {
               printf "%s, %.10g]", substr($0, 1, RSTART - 1), substr($0, RSTART + 1, RLENGTH - 2) / 2
               $0 = substr($0, RSTART + RLENGTH)
           }
           if ($0 ~ /\]/) table = 0
           print }'
}

# row NAME OPTION...: the step times of both modes on the node of that name in the folder
row() {
    name=$1
    shift
    "$REPLAY" --node="$changed/$name.json" --quiet "$@" >"$changed/said" || exit 1
    awk -v name="$name" '$1 ~ /^[0-9]+$/ && NF == 4 && !seen++ { printf "%-12s %10s %10s\n", name, $2, $3 }' "$changed/said"
}

cp "$node" "$changed/nothing.json"
change 2 fp32_GFLOPs fp16_GFLOPs >"$changed/products.json"
change 2 memory_GBps >"$changed/memory.json"
change 2 GBps >"$changed/links.json"
change 2 bus_GBps | halve_table >"$changed/all-reduce.json"
change 0.5 hop_us >"$changed/hops.json"
change 0.5 launch_us lock_us >"$changed/launch.json"
change 0.5 hand_over_us awake_us >"$changed/hand-over.json"
printf '%-12s %10s %10s\n' 'twice' 'DP ms' 'DDP ms'
for name in nothing products memory links all-reduce hops launch hand-over; do row $name "$@"; done
