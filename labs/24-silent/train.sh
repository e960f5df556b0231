#!/bin/sh
# Trains with one of lab 24's eight programs, or with the reference, by the same options.
# usage: labs/24-silent/train.sh PROGRAM [OPTION...]          PROGRAM: 1 to 8. OPTION: one more of ddp_train's, such as --debug-values
#        labs/24-silent/train.sh right PROGRAM [OPTION...]    the reference, trained as that program is
#        labs/24-silent/train.sh one PROGRAM [OPTION...]      the reference on one device, with the same weights and samples
# The programs are in build/labs/24, the reference in $ORACLE, or a handout's reference/, or build/.
set -u
built=${BUILD:-build} reference=${ORACLE:-${BUILD:-build}}
[ "${ORACLE:-}" ] || [ ! -d reference ] || reference=reference
program='' one=''
case ${1:-} in
right) program=$reference/ddp_train && shift ;;
one) program=$reference/ddp_train one=1 && shift ;;
esac
case ${1:-} in
[1-8]) number=$1 && shift ;;
*) echo "labs/24-silent/train.sh: a program from 1 to 8 is expected, not '${1:-}'" >&2 && exit 2 ;;
esac

gpt='--data sums:1 --lr 0.003 --batch-size 16 --steps 100'
case $number in
1 | 4 | 6 | 7) options="--spawn 4 --tensor 2 --model gpt:2,4,64,32 $gpt" ;;
2) options="--spawn 4 --tensor 2 --sequence-parallel --model gpt:2,4,64,32 $gpt" ;;
3) options='--spawn 4 --tensor 2 --sync-bn --model convnet --batch-size 32 --steps 100' ;;
5) options="--spawn 4 --tensor 2 --clip-norm 0.5 --model gpt:2,4,64,32 $gpt" ;;
8) options="--spawn 2 --pipeline 2 --accumulate 2 --model gpt:2,4,64,32 $gpt" ;;
esac
# Without the options that make it parallel.
[ -z "$one" ] || options=$(echo "$options" | sed -E 's/--(spawn|tensor|pipeline) [0-9]+ //g; s/--(sequence-parallel|sync-bn) //g')
# shellcheck disable=SC2086
exec "${program:-$built/labs/24/silent_$number}" --device-kind cpu $options --quiet --no-evaluate "$@"
