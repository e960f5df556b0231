#!/bin/sh
# Grades a class: a line of CSV for each student, lab and check.
# usage: labs/course/class.sh SUBMISSIONS OUT LAB...   SUBMISSIONS/STUDENT holds files as they lie in the tree (common/comm/allreduce_ring.c)
# A student's crash or endless loop costs that student's check one deadline. Run it in the container of labs/course/Containerfile: the
# grader confines what it runs, and a container confines the rest.
set -u
. labs/course/conf.sh
submissions=$1 out=$2
shift 2
[ -d "$submissions" ] || { words no-folder "$submissions" >&2; exit 2; }
mkdir -p "$out/class"
csv=$out/class.csv
echo 'student,lab,check,points,max,verdict,seconds,sha256' >"$csv.new"

# student LAB: its lines, from the grader's JSON
lines() {
    awk -v student="$(printf '%s' "$name" | tr ',"' '__')" -v lab="$1" -v seconds="$2" -v sum="$3" '
        function text(line) { sub(/^[^:]*:[ \t]*/, "", line); gsub(/[",]/, "", line); return line }
        /"check":/ { check = text($0) } /"points":/ { points = text($0) } /"of":/ { of = text($0) }
        /"verdict":/ { print student "," lab "," check "," points "," of "," text($0) "," seconds "," sum }' "$4"
}

for folder_of_student in "$submissions"/*/; do
    name=$(basename "$folder_of_student")
    for lab; do
        folder=$(lab_folder "$lab") || exit 2
        files=$(cut_files "$folder")
        sum=$(for file in $files; do cat "$folder_of_student/$file" 2>/dev/null; done | sha256sum | cut -d' ' -f1)
        began=$(date +%s)
        labs/course/grade.sh "$folder_of_student" "$out/class/$name" "$lab" >"$out/class/$name.$lab.txt" 2>&1 </dev/null
        [ $? -eq 2 ] && { cat "$out/class/$name.$lab.txt" >&2; exit 1; }
        lines "$lab" $(($(date +%s) - began)) "$sum" "$out/class/$name/$lab/grade.json" >>"$csv.new"
    done
    rm -rf "${out:?}/class/$name"
done
mv "$csv.new" "$csv"
awk -F, 'NR > 1 { points[$1] += $4; of[$1] += $5 } END { for (s in points) print s "," points[s] "," of[s] }' "$csv" | sort |
    while IFS=, read -r name points of; do words student-points "$points" "$of" "$name"; done
echo "$csv"
