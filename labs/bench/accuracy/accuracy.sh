#!/bin/sh
# Accuracy on held-out digits: trains the recipes below with several seeds, in both modes on two devices, and prints what each run
# reached. Fails if a median is below the promised accuracy.
#
# The training set is warps of the real training digits (mkdigits); the test set is the 297 real digits of the t10k files, as they are.
# The recipes were chosen on the last 300 training digits, which were held out for that; the test digits were not used.
# usage: [DEVICE=cpu|cuda] labs/bench/accuracy/accuracy.sh BUILD_FOLDER [SEED...]      (seeds 0 to 4; cuda: two devices that share GPU 0)
set -u
export LC_ALL=C
fail() { echo "accuracy: $*" >&2; exit 1; }
[ $# -ge 1 ] || { echo "usage: $0 BUILD_FOLDER [SEED...]" >&2; exit 2; }
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec "$(dirname "$0")/../shared/stoppable.sh" "$0" "$@"
build=$1
shift
[ $# -gt 0 ] || set -- 0 1 2 3 4
for program in mkdigits dp_train ddp_train; do
    [ -x "$build/$program" ] || fail "there is no $build/$program; run make first"
done

digits='--count 15000 --test-count 297 --no-warp-test --seed 0'
optimizer='--optimizer adam --lr 0.001 --batch-size 64'
recipes() { # model, epochs, the promised median in percent
    echo mlp 10 90
    echo convnet 2 93
}
kind=${DEVICE:-cpu}
limit_s=60 # of one run, on two cores

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP

# train MODE MODEL EPOCHS SEED: prints accuracy and seconds
train() {
    case $1-$kind in
    DP-cuda) set -- dp_train '--device-ids 0,0' "$@" ;;
    DP-*) set -- dp_train '--devices 2' "$@" ;;
    *) set -- ddp_train '--spawn 2' "$@" ;;
    esac
    from=$(date +%s.%N)
    # shellcheck disable=SC2086 # the options are words
    "$build/$1" --device-kind "$kind" $2 --model "$4" --epochs "$5" --seed "$6" $optimizer --data "$folder/digits" --quiet >"$folder/out" || return 1
    to=$(date +%s.%N)
    reached=$(sed -n 's/^final loss .*, test accuracy \([0-9.]*\) %.*/\1/p' "$folder/out")
    [ -n "$reached" ] || fail "$1 reports no accuracy"
    echo "$reached $from $to" | awk '{ printf "%s %.1f\n", $1, $3 - $2 }'
}

# The median of the runs' first column, and the largest of the second.
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }
longest() { awk '$2 > most { most = $2 } END { print most + 0 }' "$1"; }

# shellcheck disable=SC2086
"$build/mkdigits" "$folder/digits" $digits --quiet >/dev/null || exit 1
echo "Data:     mkdigits $digits"
recipes | while read -r model epochs promised; do echo "Recipe:   $model: $optimizer --epochs $epochs"; done
echo "Measured on this machine, two $kind devices, each seed once; tested on 297 real digits that no training digit was made from"
printf '\n%-8s %-5s %8s %10s %9s   %s\n' model mode 'median %' 'promised %' longest "each run in %, seeds $*"
: >"$folder/missed"
recipes | while read -r model epochs promised; do
    for mode in DP DDP; do
        : >"$folder/runs"
        for seed in "$@"; do train "$mode" "$model" "$epochs" "$seed" >>"$folder/runs" </dev/null || exit 1; done
        middle=$(median "$folder/runs") took_s=$(longest "$folder/runs")
        printf '%-8s %-5s %8s %10s %7s s  ' "$model" "$mode" "$middle" "$promised" "$took_s"
        awk '{ printf " %s", $1 } END { print "" }' "$folder/runs"
        awk -v got="$middle" -v want="$promised" 'BEGIN { exit !(got >= want) }' || echo "$model $mode" >>"$folder/missed"
        awk -v took="$took_s" -v most="$limit_s" 'BEGIN { exit !(took < most) }' ||
            echo "  a run took $took_s s, where $limit_s s are promised on two free cores; was this machine busy?"
    done
done || exit 1
[ ! -s "$folder/missed" ] || fail "the median is lower than promised for $(tr '\n' ',' <"$folder/missed" | sed 's/,$//; s/,/, /g')"
