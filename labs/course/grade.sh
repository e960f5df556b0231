#!/bin/sh
# Builds and judges labs: `make grade` calls it.
# usage: labs/course/grade.sh CODE OUT LAB...    CODE: the tree with the student's files; OUT: a folder for built files
# OUT/LAB/grade.json has the verdicts, and OUT/LAB/graded the checksum of the code; both stay unchanged if it could not
# be graded.
# The lab's programs are also built, so that a hint's command runs this code; not with PROBE_ONLY=1, nor before all
# functions are written.
# Exit status: the worst of build/grade's; 3 only if no lab has a written function; 2 if a lab could not be graded.
set -u
. labs/course/conf.sh
code=$1 top=$2
shift 2
worst=0 unwritten=0 count=0
refuse_changed_tree
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    out=$top/$lab
    mkdir -p "$out"
    reference=${COURSE_REFERENCE:+$COURSE_REFERENCE/$lab}
    if [ -z "$reference" ]; then
        reference=$out
        stale=$(find "$out/reference" labs/course/build.sh "$folder"/*.c "$COURSE_LIB" -newer "$out/reference" 2>&1 | head -1)
        [ -z "$stale" ] || words building-reference "$lab"
        [ -z "$stale" ] || labs/course/build.sh reference "$lab" "$out" || { words no-reference "$lab" >&2; exit 2; }
    else
        cp "$reference/allowed" "$out/allowed"
    fi
    seed=${SEED:+--seed=$SEED} sum=$(code_sum) probe_only=${PROBE_ONLY:-}
    is_unwritten && probe_only=1
    rm -f "$out/grade.json.new"
    words building-yours "$lab"
    if PROBE_ONLY=$probe_only labs/course/build.sh student "$lab" "$code" "$out"; then
        built=$(realpath "$out") asan=''
        [ "${NO_ASAN:-}" ] || asan=--asan=$built/probe_asan
        # shellcheck disable=SC2086
        "${ORACLE:-$BUILD}/grade" --lab="$folder" --student="$built/probe" ${asan:+"$asan"} \
            --reference="$(realpath "$reference/reference")" --json="$out/grade.json.new" $seed ${UNTIL_BROKEN:+--until-broken}
    else
        "${ORACLE:-$BUILD}/grade" --lab="$folder" --refused="$(cat "$out/refused")" --refused-in-words="$(cat "$out/refused.words")" \
            --json="$out/grade.json.new" $seed
    fi
    status=$?
    [ -f "$out/grade.json.new" ] || exit 2
    mv "$out/grade.json.new" "$out/grade.json" && echo "$sum" >"$out/graded" || exit 2
    count=$((count + 1))
    if [ $status -eq 3 ]; then unwritten=$((unwritten + 1)); elif [ $status -gt $worst ]; then worst=$status; fi
done
[ $unwritten -eq $count ] && exit 3
[ $unwritten -gt 0 ] && exit 1
exit $worst
