#!/bin/sh
# The same node with more devices, each with a core and a link like the first one's. The rows of all_reduce_us do not cover more ranks, so the
# formula is used for them: base_us + 2 (N - 1) hop_us + 2 (N - 1) / N S / bus_GBps. The file's bus_GBps is the rate of the largest all-reduce,
# which fits in no cache. So the copy has the rate of the row [ranks, bytes, us] whose bytes are nearest to BYTES, the gradients of a model:
# for that row the formula gives the measured time. A node with N devices or more is unchanged.
# usage: labs/16-your-node/wider.sh NODE.json N [BYTES] >FILE.json      a node as make calibrate writes it; BYTES: 1000000
set -u
if [ $# -lt 2 ] || [ $# -gt 3 ] || [ ! -r "$1" ]; then
    sed -n 's/^# usage: //p' "$0" >&2
    exit 2
fi
figure() { sed -n "s/.*\"$2\":[[:space:]]*\([0-9.e-]*\).*/\1/p" "$1" | head -1; }
GBps=$(figure "$1" GBps) latency_us=$(figure "$1" latency_us) devices=$(figure "$1" devices)
base_us=$(figure "$1" base_us) hop_us=$(figure "$1" hop_us)
if [ -z "$GBps" ] || [ -z "$latency_us" ] || [ -z "$devices" ] || [ -z "$base_us" ] || [ -z "$hop_us" ]; then
    echo "wider: $1 is no node as make calibrate writes it" >&2
    exit 2
fi

# The numbers of the table, three per row.
bus_GBps=$(sed -n 's/.*"all_reduce_us":[[:space:]]*\(\[[^"]*\).*/\1/p' "$1" | tr -cs '0-9.e+-' '\n' | awk -v wanted="${3:-1000000}" -v base="$base_us" -v hop="$hop_us" '
    NF { number[count++] = $1 }
    END {
        for (i = 0; i + 2 < count; i += 3) {
            ranks = number[i]; far = log(number[i + 1] / wanted); if (far < 0) far = -far
            sent_us = number[i + 2] - base - 2 * (ranks - 1) * hop
            if (sent_us <= 0 || (best != "" && far >= nearest)) continue
            nearest = far; best = 2 * (ranks - 1) / ranks * number[i + 1] / sent_us * 0.001
        }
        if (best != "") printf "%.4g\n", best
    }')
[ "$bus_GBps" ] || { echo "wider: $1 has no rows of all_reduce_us" >&2; exit 2; }

awk -v n="$2" -v devices="$devices" -v GBps="$GBps" -v latency="$latency_us" -v bus="$bus_GBps" '
    n <= devices { print; next }
    /"bus_GBps":/ { sub(/"bus_GBps":[ \t]*[0-9.e+-]+/, "\"bus_GBps\": " bus) }
    /"devices":/ { sub(/"devices":[ \t]*[0-9]+/, "\"devices\": " n) }
    /"cores":/ { sub(/"cores":[ \t]*[0-9]+/, "\"cores\": " n) }
    /"links":/ {
        more = ""
        for (d = devices; d < n; d++)
            more = more sprintf("{\"name\": \"memory%d\", \"from\": \"gpu%d\", \"to\": \"host\", \"GBps\": %s, \"latency_us\": %s, \"duplex\": true}, ", d, d, GBps, latency)
        sub(/"links":[ \t]*\[/, "&" more)
    }
    { print }' "$1"
