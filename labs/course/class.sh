#!/bin/sh
# Grades a class: a line of CSV for each student, lab and check, whatever happens to a student's grading.
# usage: labs/course/class.sh SUBMISSIONS OUT LAB...   SUBMISSIONS/STUDENT has files with the tree's paths (common/comm/allreduce_ring.c)
#        labs/course/class.sh --student NUMBER OUT LAB...   one of them, to OUT/class/NUMBER, after the first form's preparation
# Folders whose names begin with a dot are ignored. Students are graded in parallel, as many as there are cores; the
# references and the probes' own objects are built once. A student's crash or endless loop costs that student's check
# one deadline. A link gets no points, and a line with the reason. In the CSV, bytes of a name that are special in
# spreadsheets or CSV are written as %XX, so that different names stay different.
# Run it in the container of labs/course/Containerfile: the grader confines what it runs, and a container confines the rest.
set -u
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec labs/bench/shared/stoppable.sh "$0" "$@"
. labs/course/conf.sh
one=''
[ "$1" = --student ] && { one=1; shift; }
submissions=$1 out=$2
shift 2

# Ends a student's lab that hangs in spite of all other limits.
most_s=900

# A student's name for the CSV: letters, digits, bytes beyond ASCII and "._ -" as they are, except a leading "-".
encode() {
    printf '%s' "$1" | od -An -v -to1 | tr -s ' ' '\n' | awk '
        NF { value = substr($1, 1, 1) * 64 + substr($1, 2, 1) * 8 + substr($1, 3); character = sprintf("%c", value); count++
             plain = value >= 128 || character ~ /[A-Za-z0-9._ ]/ || character == "-" && count > 1
             printf plain ? "\\%s" : "%%%%%02X", plain ? $1 : value }
        END { print "" }' | {
        read -r format
        # shellcheck disable=SC2059
        printf "$format"
    }
}

# lines LAB SECONDS SHA256 JSON: a lab's lines of $name, from the grader's JSON
lines() {
    STUDENT=$name awk -v lab="$1" -v seconds="$2" -v sum="$3" '
        function text(line) { sub(/^[^:]*:[ \t]*/, "", line); gsub(/[",]/, "", line); return line }
        /"check":/ { check = text($0) } /"points":/ { points = text($0) } /"of":/ { of = text($0) }
        /"verdict":/ { print ENVIRON["STUDENT"] "," lab "," check "," points "," of "," text($0) "," seconds "," sum }' "$4"
}

# no_points LAB WHY: the lines of a lab that could not be graded
no_points() {
    conf_lines "$(lab_folder "$1")" check | STUDENT=$name awk -v lab="$1" -v why="$2" '{ print ENVIRON["STUDENT"] "," lab "," $1 ",0," $2 ",not graded: " why ",0," }'
}

# Writes OUT/class/NUMBER/LAB.csv, atomically.
grade_lab() { # LAB
    folder=$(lab_folder "$1") || return 1
    began=$(date +%s)
    mkdir -p "$work/$1" && cp -rp "$COURSE_REFERENCE/$1/own" "$work/$1/own" || return 1
    PROBE_ONLY=1 timeout --foreground -k 5 $most_s labs/course/grade.sh "$code" "$work" "$1" >"$work/$1.txt" 2>&1 </dev/null
    [ -f "$work/$1/grade.json" ] || { cat "$work/$1.txt" >&2; return 1; }
    lines "$1" $(($(date +%s) - began)) "$(code_sum sha256sum | cut -d' ' -f1)" "$work/$1/grade.json" >"$work/$1.csv.new" &&
        mv "$work/$1.csv.new" "$work/$1.csv"
    rm -rf "${work:?}/$1"
}

if [ "$one" ]; then
    work=$out/class/$submissions code=$out/class/$submissions/submission
    name=$(cat "$work/name")
    [ -f "$work/is_link" ] || for lab; do grade_lab "$lab"; done
    : >"$work/done"
    words students-graded "$(ls "$out"/class/*/done | wc -l)" "$(ls "$out"/class/*/name | wc -l)"
    exit 0
fi

[ -d "$submissions" ] || { words no-folder "$submissions" >&2; exit 2; }
"$BUILD/grade" --confines || { words not-confined >&2; exit 2; }
refuse_changed_tree
rm -rf "$out/class" && mkdir -p "$out/class" || exit 1
if [ -z "${COURSE_REFERENCE:-}" ]; then
    COURSE_REFERENCE=$out/class/reference
    export COURSE_REFERENCE
    for lab; do
        words building-reference "$lab"
        labs/course/build.sh reference "$lab" "$COURSE_REFERENCE/$lab" && labs/course/build.sh own "$lab" "$COURSE_REFERENCE/$lab" ||
            { words no-reference "$lab" >&2; exit 2; }
    done
fi

# Students are numbered from here on: a name may contain any characters.
count=0
for path in "$submissions"/*; do
    [ -d "$path" ] || [ -L "$path" ] || continue
    case $path in /*) ;; *) path=$PWD/$path ;; esac
    count=$((count + 1))
    mkdir "$out/class/$count" && { [ ! -L "$path" ] || : >"$out/class/$count/is_link"; } && ln -s "$path" "$out/class/$count/submission" && encode "${path##*/}" >"$out/class/$count/name" || exit 1
done
seq $count | xargs -P "$(nproc)" -I %number% "$0" --student %number% "$out" "$@"

csv=$out/class.csv
for number in $(seq $count); do
    work=$out/class/$number name=$(cat "$out/class/$number/name") why='the grader failed'
    [ ! -f "$work/is_link" ] || why='a link'
    for lab; do cat "$work/$lab.csv" 2>/dev/null || no_points "$lab" "$why"; done
done >"$out/class/rows" || exit 1
{ echo 'student,lab,check,points,max,verdict,seconds,sha256' && sort -s -t, -k1,1 "$out/class/rows"; } >"$csv.new" && mv "$csv.new" "$csv" || exit 1
awk -F, 'NR > 1 { points[$1] += $4; of[$1] += $5 } END { for (s in points) print s "," points[s] "," of[s] }' "$csv" | sort |
    while IFS=, read -r name points of; do words student-points "$points" "$of" "$name"; done
echo "$csv"
