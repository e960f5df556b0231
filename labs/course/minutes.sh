#!/bin/sh
# Computes the minutes of each lab by one rule: 120 words of its sheet a minute, 4 minutes a question, 3 minutes a line
# of the functions to write, and its runs as timed (`runs MINUTES` in lab.conf); rounded up to a quarter of an hour.
# usage: labs/course/minutes.sh print|write|check LAB...
#   print: a line for each lab. write: into lab.conf, the sheets and the tables of labs/README*.md. check: exit status 1 if one differs
set -u
. labs/course/conf.sh
what=$1
shift
bad=0 all=0

# The words of a sheet, except code blocks, table rules and marks.
words_of() { sed '/^ *```/,/^ *```/d; s/<!--[^>]*-->//g' "$1" | tr -s ' \t|' '\n\n\n' | grep -c '[A-Za-z0-9]'; }

questions_of() { awk '/^## / { on = $0 == "## Questions" } on && /^[0-9]+\. / { n++ } END { print n + 0 }' "$1"; }

# Lines of the bodies that students write: those with code.
lines_of() {
    conf_lines "$1" cut | while read -r file name; do awk -v name="$name" -v body=1 -f labs/course/cut.awk "$file"; done |
        grep -cvE '^ *(/\*.*\*/)?$'
}

# agree FILE PATTERN REPLACEMENT: checks or changes the minutes in the one line with the pattern.
agree() {
    [ "$(grep -cE "$2" "$1")" -eq 1 ] || { echo "$1: not one line like: $2"; bad=1; return; }
    sed -E "s#$2#$3#" "$1" >"$1.new"
    if [ "$what" = write ]; then cat "$1.new" >"$1"; else
        cmp -s "$1" "$1.new" || { echo "$1: by the rule of labs/instructors.md it is other minutes: labs/course/minutes.sh write"; diff "$1" "$1.new"; bad=1; }
    fi
    rm "$1.new"
}

for lab; do
    folder=$(lab_folder "$lab") || exit 2
    words=$(words_of "$folder/README.md") questions=$(questions_of "$folder/README.md") lines=$(lines_of "$folder")
    runs=$(conf_lines "$folder" runs)
    [ "$runs" ] || { echo "$folder/lab.conf: no line \"runs MINUTES\""; bad=1; continue; }
    minutes=$(((words / 120 + 4 * questions + 3 * lines + runs + 14) / 15 * 15))
    all=$((all + minutes))
    if [ "$what" = print ]; then
        echo "$lab: $words words, $questions questions, $lines lines, runs of $runs minutes: $minutes minutes"
        continue
    fi
    agree "$folder/lab.conf" '^minutes [0-9]+' "minutes $minutes"
    agree "$folder/README.md" '^[0-9]+ minutes\.' "$minutes minutes."
    agree "$folder/README.zh.md" '^[0-9]+ 分钟。' "$minutes 分钟。"
    for page in labs/README.md labs/README.zh.md; do agree "$page" "^(\| \[$lab [^|]* \|) [0-9]+ \|" "\1 $minutes |"; done
done
# The weeks' sums and that of the course, in the pages that list them.
if [ "$what" != print ]; then
    for page in labs/README.md labs/README.zh.md; do
        for week in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
            sum=0
            for lab in $(sed -nE "s/^\\| $week \\| [0-9]+ \\| ([0-9、, ]+) \\|.*/\\1/p" "$page" | sed 's/[^0-9]/ /g'); do
                sum=$((sum + $(sed -n 's/^minutes //p' "$(lab_folder "$lab")/lab.conf")))
            done
            agree "$page" "^\\| $week \\| [0-9]+ \\|" "| $week | $sum |"
        done
    done
    total=0
    for lab in $(all_labs); do total=$((total + $(sed -n 's/^minutes //p' "$(lab_folder "$lab")/lab.conf"))); done
    agree labs/README.md 'as timed; [0-9]+ hours in all' "as timed; $((total / 60)) hours in all"
    agree labs/README.zh.md '一共 [0-9]+ 小时' "一共 $((total / 60)) 小时"
fi
[ "$what" = check ] || [ "$bad" -ne 0 ] || echo "all: $all minutes, $((all / 60)) hours"
exit $bad
