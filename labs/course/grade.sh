#!/bin/sh
# Builds and judges labs: `make grade` calls it.
# usage: labs/course/grade.sh CODE OUT LAB...    CODE: the tree with the student's files; OUT: a folder for what is built
# Exit status: the worst of build/grade's, with 3 only where no lab has anything written.
set -u
. labs/course/conf.sh
code=$1 top=$2
shift 2
worst=0 unwritten=0 count=0
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    out=$top/$lab
    mkdir -p "$out"
    reference=${COURSE_REFERENCE:+$COURSE_REFERENCE/$lab}
    if [ -z "$reference" ]; then
        reference=$out
        stale=$(find "$out/reference" labs/course/build.sh "$folder"/*.c "$COURSE_LIB" -newer "$out/reference" 2>&1 | head -1)
        [ -z "$stale" ] || labs/course/build.sh reference "$lab" "$out" || { words no-reference "$lab" >&2; exit 2; }
    else
        cp "$reference/allowed" "$out/allowed"
    fi
    seed=${SEED:+--seed=$SEED} asan=--asan=$PWD/$out/probe_asan
    [ -z "${NO_ASAN:-}" ] || asan=''
    if PROBE_ONLY=1 labs/course/build.sh student "$lab" "$code" "$out"; then
        # shellcheck disable=SC2086
        "$BUILD/grade" --lab="$folder" --student="$PWD/$out/probe" ${asan:+"$asan"} \
            --reference="$(realpath "$reference/reference")" --json="$out/grade.json" $seed ${UNTIL_BROKEN:+--until-broken}
    else
        "$BUILD/grade" --lab="$folder" --refused="$(cat "$out/refused")" --refused-in-words="$(cat "$out/refused.words")" \
            --json="$out/grade.json" $seed
    fi
    status=$?
    [ $status -eq 2 ] && exit 2
    code_sum >"$out/graded" # of which code these verdicts are, for the report
    count=$((count + 1))
    if [ $status -eq 3 ]; then unwritten=$((unwritten + 1)); elif [ $status -gt $worst ]; then worst=$status; fi
done
[ $unwritten -eq $count ] && exit 3
[ $unwritten -gt 0 ] && exit 1
exit $worst
