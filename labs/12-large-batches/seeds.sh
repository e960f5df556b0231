#!/bin/sh
# Trains once with each of the seeds 0 to 4, and compares the results: a seed decides the initial weights and the order of the
# samples.
#   accuracy : per cent of the test samples
#   loss     : the mean over the last epoch's steps
#   median   : the middle value; lowest and highest are the spread
# usage: labs/12-large-batches/seeds.sh PROGRAM [OPTION...]      PROGRAM: dp_train or ddp_train
set -u
export LC_ALL=C
[ $# -ge 1 ] || { echo "usage: $0 PROGRAM [OPTION...]" >&2; exit 2; }
seeds='0 1 2 3 4'
reached=''
for seed in $seeds; do
    said=$("$@" --quiet --seed "$seed") || exit
    reached="$reached$(echo "$said" | awk '/^epoch/ { loss = $4 } /^final loss/ { sub(/.*accuracy /, ""); print $1, loss }')
"
done
printf '%s' "$reached" | awk -v seeds="$seeds" '
    function row(name, format, value,    i, j, sorted) {
        printf "%-8s", name
        for (i = 1; i <= NR; i++) {
            printf format, value[i]
            for (j = i; j > 1 && sorted[j - 1] + 0 > value[i] + 0; j--) sorted[j] = sorted[j - 1]
            sorted[j] = value[i]
        }
        printf "   " format format format "\n", sorted[(NR + 1) / 2], sorted[1], sorted[NR]
    }
    BEGIN {
        count = split(seeds, seed, " ")
        printf "%-8s", "seed"
        for (i = 1; i <= count; i++) printf "%9s", seed[i]
        printf "   %9s%9s%9s\n", "median", "lowest", "highest"
    }
    { accuracy[NR] = $1; loss[NR] = $2 }
    END { if (NR != count) exit 1; row("accuracy", "%9.1f", accuracy); row("loss", "%9.4f", loss) }'
