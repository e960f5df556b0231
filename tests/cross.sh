#!/bin/sh
# `make cross-check`: runs programs for another machine under qemu, and compares them with this machine's. DP and DDP must have the same bits
# there. Both machines must have the same bits with the same matrix multiply: oneDNN's selects its instructions by the processor, so
# tests/programs/preload/plain_product.c replaces it.
# usage: tests/cross.sh HERE THERE CC CROSS_CC SYSROOT    (folders with the programs; the compilers; the other machine's libraries, or empty)
set -u
export LC_ALL=C
here=$1 there=$2 cc=$3 cross_cc=$4 sysroot=$5 failed=0
machine=$($cross_cc -dumpmachine | cut -d- -f1)
emulated="tests/emulated.sh $machine"
[ -z "$sysroot" ] || export QEMU_LD_PREFIX="$sysroot"
fail() { echo "cross-check: FAILED: $*"; failed=1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# weights COMMAND...: the hash that it prints; empty if it fails, with its output.
weights() {
    timeout 600 "$@" >"$work/said" 2>&1 || { tail -n 5 "$work/said" >&2; return; }
    sed -n 's/.*weights \([0-9a-f]*\).*/\1/p' "$work/said"
}
# QEMU_SET_ENV sets a variable for programs under qemu only: this machine's programs cannot load that library.
here_plainly() { LD_PRELOAD=$work/here.so weights "$@"; }
there_plainly() { QEMU_SET_ENV=LD_PRELOAD=$work/there.so weights "$@"; }

for side in "here $cc" "there $cross_cc${sysroot:+ --sysroot=$sysroot}"; do
    ${side#* } -std=c11 -O2 -Wall -Wextra -Wpedantic -Werror -ffp-contract=off -fPIC -shared tests/programs/preload/plain_product.c \
        -o "$work/${side%% *}.so" -lm || exit 1
done
[ "$(readelf -h "$here/dp_train" | sed -n 's/ *Machine: *//p')" != "$(readelf -h "$there/dp_train" | sed -n 's/ *Machine: *//p')" ] ||
    fail "$here and $there are for the same machine"

"$here/hello" >"$work/hello" 2>&1
$emulated "$there/hello" 2>&1 | cmp -s - "$work/hello" || fail "the output of hello differs on $machine"

for model in mlp convnet gpt:2,2,32,16; do
    what="--model $model --steps 3 --batch-size 16 --no-evaluate"
    dp=$(weights $emulated "$there/dp_train" --devices 2 $what)
    ddp=$(weights $emulated "$there/ddp_train" --spawn 2 --shard contiguous $what)
    plain=$(there_plainly $emulated "$there/dp_train" --devices 2 $what)
    plain_here=$(here_plainly "$here/dp_train" --devices 2 $what)
    own=$(weights "$here/dp_train" --devices 2 $what)
    echo "$model: $machine DP $dp, DDP $ddp; here $own; with the same matrix multiply: $machine $plain, here $plain_here"
    [ -n "$dp" ] && [ "$dp" = "$ddp" ] || fail "$model: DP and DDP differ on $machine"
    [ -n "$plain" ] && [ "$plain" = "$plain_here" ] || fail "$model: the bits on $machine and on this machine differ, with the same matrix multiply"
done
[ $failed = 0 ] && echo "cross-check: $machine: DP = DDP; with the same matrix multiply, the same bits as this machine"
exit $failed
