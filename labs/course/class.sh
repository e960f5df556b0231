#!/bin/sh
# Grades a class: a line of CSV for each student, lab and check.
# usage: labs/course/class.sh SUBMISSIONS OUT LAB...   SUBMISSIONS/STUDENT holds files as they lie in the tree (common/comm/allreduce_ring.c)
#        labs/course/class.sh --student FOLDER OUT LAB...   one of them, to OUT/class/students/NAME, with what the first form has prepared
# Folders whose names begin with a dot are nobody's. Students are graded side by side, as many as there are cores; the references and the
# probes' own objects are built once. A student's crash or endless loop costs that student's check one deadline. Run it in the container of
# labs/course/Containerfile: the grader confines what it runs, and a container confines the rest.
set -u
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec labs/bench/shared/stoppable.sh "$0" "$@"
. labs/course/conf.sh
one=''
[ "$1" = --student ] && { one=1; shift; }
submissions=$1 out=$2
shift 2

# lines LAB SECONDS SHA256 JSON: a lab's lines of $name, from the grader's JSON
lines() {
    STUDENT=$(printf '%s' "$name" | tr ',"\r\n' '____') awk -v lab="$1" -v seconds="$2" -v sum="$3" '
        function text(line) { sub(/^[^:]*:[ \t]*/, "", line); gsub(/[",]/, "", line); return line }
        /"check":/ { check = text($0) } /"points":/ { points = text($0) } /"of":/ { of = text($0) }
        /"verdict":/ { print ENVIRON["STUDENT"] "," lab "," check "," points "," of "," text($0) "," seconds "," sum }' "$4"
}

grade_student() {
    name=$(basename "$submissions") work=$out/class/students/$(basename "$submissions")
    rm -rf "$work" && mkdir -p "$work" || return 1
    for lab; do
        folder=$(lab_folder "$lab") || return 1
        sum=$(for file in $(cut_files "$folder"); do [ ! -f "$submissions/$file" ] || cat "$submissions/$file"; done | sha256sum | cut -d' ' -f1)
        began=$(date +%s)
        mkdir -p "$work/$lab" && cp -rp "$COURSE_REFERENCE/$lab/own" "$work/$lab/own" || return 1
        PROBE_ONLY=1 labs/course/grade.sh "$submissions" "$work" "$lab" >"$work/$lab.txt" 2>&1 </dev/null
        [ $? -eq 2 ] && { cat "$work/$lab.txt" >&2; return 1; }
        lines "$lab" $(($(date +%s) - began)) "$sum" "$work/$lab/grade.json" >>"$work/lines.csv"
        rm -rf "${work:?}/$lab"
    done
}

if [ "$one" ]; then
    grade_student "$@"
    exit
fi

[ -d "$submissions" ] || { words no-folder "$submissions" >&2; exit 2; }
rm -rf "$out/class" && mkdir -p "$out/class/students" || exit 1
if [ -z "${COURSE_REFERENCE:-}" ]; then
    COURSE_REFERENCE=$out/class/reference
    export COURSE_REFERENCE
    for lab; do
        labs/course/build.sh reference "$lab" "$COURSE_REFERENCE/$lab" && labs/course/build.sh own "$lab" "$COURSE_REFERENCE/$lab" ||
            { words no-reference "$lab" >&2; exit 2; }
    done
fi
find "$(realpath "$submissions")" -mindepth 1 -maxdepth 1 -type d ! -name '.*' -print0 | sort -z |
    xargs -0 -P "$(nproc)" -I STUDENT "$0" --student STUDENT "$out" "$@" || exit 1
csv=$out/class.csv
{
    echo 'student,lab,check,points,max,verdict,seconds,sha256'
    find "$out/class/students" -name lines.csv -print0 | sort -z | xargs -0 -r cat
} >"$csv.new" && mv "$csv.new" "$csv" || exit 1
awk -F, 'NR > 1 { points[$1] += $4; of[$1] += $5 } END { for (s in points) print s "," points[s] "," of[s] }' "$csv" | sort |
    while IFS=, read -r name points of; do words student-points "$points" "$of" "$name"; done
echo "$csv"
