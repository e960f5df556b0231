#!/bin/sh
# The same node with more devices, each with a core and a link like the first one's. Rows of all_reduce_us do not say what more ranks take,
# so that the formula counts for them: base_us + 2 (N - 1) hop_us + 2 (N - 1) / N S / bus_GBps.
# A node that has N devices or more stays as it is.
# usage: labs/16-your-node/wider.sh NODE.json N >FILE.json      a node as make calibrate writes it
set -u
if [ $# -ne 2 ] || [ ! -r "$1" ]; then
    sed -n 's/^# usage: //p' "$0" >&2
    exit 2
fi
figure() { sed -n "s/.*\"$2\":[[:space:]]*\([0-9.e-]*\).*/\1/p" "$1" | head -1; }
GBps=$(figure "$1" GBps) latency_us=$(figure "$1" latency_us) devices=$(figure "$1" devices)
if [ -z "$GBps" ] || [ -z "$latency_us" ] || [ -z "$devices" ]; then
    echo "wider: $1 is no node as make calibrate writes it" >&2
    exit 2
fi

awk -v n="$2" -v devices="$devices" -v GBps="$GBps" -v latency="$latency_us" '
    n <= devices { print; next }
    /"devices":/ { sub(/"devices":[ \t]*[0-9]+/, "\"devices\": " n) }
    /"cores":/ { sub(/"cores":[ \t]*[0-9]+/, "\"cores\": " n) }
    /"links":/ {
        more = ""
        for (d = devices; d < n; d++)
            more = more sprintf("{\"name\": \"memory%d\", \"from\": \"gpu%d\", \"to\": \"host\", \"GBps\": %s, \"latency_us\": %s, \"duplex\": true}, ", d, d, GBps, latency)
        sub(/"links":[ \t]*\[/, "&" more)
    }
    { print }' "$1"
