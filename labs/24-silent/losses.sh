#!/bin/sh
# Trains with each of the eight programs and, with the same options, with the reference, and compares their losses. The first run
# takes half a minute: results in OUT are reused, unless a program is newer.
# usage: labs/24-silent/losses.sh OUT                    a table; OUT/losses.csv: program, step, loss of the right run, loss of the wrong one
#        labs/24-silent/losses.sh OUT right|wrong N      the mean loss of the last ten steps with the options of program N
#        labs/24-silent/losses.sh OUT apart N            the first step whose losses differ by more than 0.1 %
set -u
out=$1 what=${2:-table} number=${3:-0}
built=${BUILD:-build}

train() {
    for n in 1 2 3 4 5 6 7 8; do
        labs/24-silent/train.sh right $n --dump-losses "$out/right.$n" >/dev/null &&
            labs/24-silent/train.sh $n --dump-losses "$out/wrong.$n" >/dev/null || return 1
        paste "$out/right.$n" "$out/wrong.$n" | awk -v n=$n '{ print n "," NR "," $1 "," $2 }' >>"$out/losses.new"
    done
    mv "$out/losses.new" "$out/losses.csv"
}

mkdir -p "$out" || exit 1
newer=$(find "$built"/labs/24/silent_[1-8] -newer "$out/losses.csv" 2>&1 | head -1)
[ -z "$newer" ] || { rm -f "$out/losses.new" && train || exit 1; }

awk -F, -v what="$what" -v number="$number" '
    { apart = $4 / $3 - 1; apart = apart < 0 ? -apart : apart
      if (apart > 0.001 && !first[$1]) first[$1] = $2
      if ($2 > 90) { right[$1] += $3 / 10; wrong[$1] += $4 / 10 } }
    END {
        if (what == "table") {
            print "program   loss, right   loss, wrong   difference   first step apart"
            for (n = 1; n <= 8; n++)
                printf "%-7d %13.4f %13.4f %10.1f %% %18d\n", n, right[n], wrong[n], 100 * (wrong[n] / right[n] - 1), first[n]
        } else if (what == "apart") print first[number]
        else printf "%.4f\n", what == "right" ? right[number] : wrong[number] }' "$out/losses.csv"
