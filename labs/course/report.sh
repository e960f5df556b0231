#!/bin/sh
# A student's report: finds out what there is of each lab, and lets build/course_report make a page of it. `make report` calls it.
# usage: labs/course/report.sh CODE OUT FILE LAB...   CODE: the tree with the student's files; OUT: where make lab and make grade have left what
#                                                     they found; FILE: the page. STUDENT: a name for it; LS_LANG=zh: in Chinese
# Labs that were not begun are left out. In a handout a missing answers.md is made, with the sheet's questions.
# Exit status: 1 nothing is begun, or the page could not be written; 2 there is no such lab.
set -u
. labs/course/conf.sh
code=${1%/} top=$2 page=$3
shift 3
[ -d "$code" ] || { words no-folder "$code" >&2; exit 2; }

# What a student was given: the copy that a handout has, or the product's file with the functions taken out.
handed_out() { # FILE TO
    mkdir -p "$(dirname "$2")" || return 1
    if [ -f "reference/handed-out/$1" ]; then cp "reference/handed-out/$1" "$2"; else cut_file "$1" "$2"; fi
}

# Whether a file of the student's, if it is there, is one: a link out of the folder would put somebody's file into the page.
is_fit() { # FILE
    ! [ -e "$code/$1" ] && ! [ -L "$code/$1" ] || is_own "$1" || { words not-own "$1" >&2; return 1; }
}

diffs() {
    for file in $(cut_files "$folder"); do
        is_fit "$file" || return 1
    done
    rm -rf "$out/handed-out"
    for file in $(cut_files "$folder"); do
        handed_out "$file" "$out/handed-out/$file" || return 1
        [ ! -f "$code/$file" ] || diff -a -u --label "handed out: $file" --label "$file" "$out/handed-out/$file" "$code/$file"
    done | head -c 2000000 >"$out/report.diff"
    rm -rf "$out/handed-out"
}

# The product's own code was written by no student.
is_products_own() { [ "$code" = . ] && [ -z "$COURSE_REFERENCE" ]; }

is_begun() {
    [ -f "$out/grade.json" ] && [ "$graded" = same ] && return
    is_own "$folder/answers.md" && grep -q '[^[:space:]]' "$code/$folder/answers.md" && return
    for name in $(conf_lines "$folder" predict | cut -d' ' -f1); do [ "$(predicted "$name")" ] && return; done
    ! is_products_own && [ -s "$out/report.diff" ]
}

graded_code() {
    if [ ! -f "$out/grade.json" ]; then echo never; return; fi
    if [ ! -f "$out/graded" ] || [ "$(cat "$out/graded")" = "$(code_sum)" ]; then echo same; else echo other; fi
}

# How a figure of lab.conf came about: KIND, of its mark and its command.
kind_of() {
    case "$1 $2" in
    *'/replay '* | *'/replay_'* | *'/tables '*) echo replayed ;;
    *virtual*) echo virtual ;;
    *'/fit_tn '*) echo computed ;;
    ~*) echo measured ;;
    *) echo counted ;;
    esac
}

# A text as one field of one line.
field() { tr '\t\r' '  ' | head -c 4000; }

facts() {
    printf 'number\t%s\nfolder\t%s\ntitle\t%s\ngraded\t%s\n' "$lab" "$folder" "$(conf_words "$folder" title)" "$graded"
    conf_words "$folder" predict | while read -r name question; do
        printf 'predict\t%s\t%s\n' "$name" "$question"
        mine=$(predicted "$name" | field)
        [ -z "$mine" ] || printf 'predicted\t%s\n' "$mine"
        value=$(sed -n "s/^$name	//p" "$out/results" 2>/dev/null | tail -1)
        [ "$value" ] || continue
        conf_lines "$folder" figure | sed -n "s/^$name  *//p" | {
            read -r mark command
            sign='!='
            is_right "$mine" "$value" && sign='='
            printf 'result\t%s\t%s\t%s\n' "$sign" "$(kind_of "$mark" "$command")" "$(printf '%s' "$value" | field)"
        }
    done
    [ $language = en ] || sed -n "s/^check  *\([^ ]*\)  */check\t\1\t/p" "$folder/lab.zh.conf" 2>/dev/null
    # what else a student wrote there: after the run, say
    names=$(conf_lines "$folder" predict | cut -d' ' -f1 | paste -sd'|' -)
    grep -a '[^[:space:]]' "$notes" 2>/dev/null | grep -avE "^(#|($names)(:|：))" | head -200 | tr '\t\r' '  ' | cut -b1-4000 | sed 's/^/remark	/'
}

# The questions of the sheet, each with room below it: the sheet's section that has the place of "Questions" in the English one.
questions() {
    sheet=$folder/README.md
    section=$(awk '/^## / { n++ } /^## Questions/ { print n; exit }' "$sheet")
    [ $language = en ] || [ ! -f "$folder/README.zh.md" ] || sheet=$folder/README.zh.md
    awk -v section="${section:-0}" '
        /^## / { n++; next }
        n != section { next }
        { gsub(/( [=~][^ ]*)?<!-- [^>]* -->/, ""); while (match($0, /\[[^]]*\]\([^)]*\)/)) {
              link = substr($0, RSTART + 1, RLENGTH - 2); sub(/\]\(.*/, "", link)
              $0 = substr($0, 1, RSTART - 1) link substr($0, RSTART + RLENGTH) } }
        /^[0-9]+\. / { if (open) print "\n"; open = 1; print "> " $0; next }
        open && /^ +[^ ]/ { sub(/^ +/, ""); print "> " $0 }
        END { if (open) print "\n" }' "$sheet"
}

make_room_for_answers() {
    answers=$folder/answers.md
    [ "$code" = . ] && [ "$COURSE_REFERENCE" ] && [ ! -e "$answers" ] && [ ! -L "$answers" ] || return 0
    if questions >"$answers.new" 2>/dev/null && [ -s "$answers.new" ] && mv "$answers.new" "$answers"; then
        words answers-new "$answers"
    else
        rm -f "$answers.new"
    fi
}

# What is written in predict.txt, be it huge, no file or not there.
take_notes() {
    : >"$notes" || return 1
    is_fit "$folder/predict.txt" || return 1
    [ ! -f "$code/$folder/predict.txt" ] || head -c 200000 "$code/$folder/predict.txt" >"$notes"
}

begun=''
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    out=$top/$lab notes=$top/$lab/report.predict
    mkdir -p "$out" && take_notes || exit 1
    graded=$(graded_code)
    diffs || exit 1
    is_begun || { rm -f "$out/report.diff"; continue; }
    make_room_for_answers
    facts >"$out/report.facts.new" && mv "$out/report.facts.new" "$out/report.facts" || exit 1
    begun="$begun $lab"
done
[ "$begun" ] || { words nothing-begun >&2; exit 1; }
version=$(${CC:-cc} -v 2>&1 | grep -m1 ' version ' | cut -b1-120)
# shellcheck disable=SC2086
"${ORACLE:-$BUILD}/course_report" --out="$page" --built="$top" --code="$code" --results="$BUILD/results" --language=$language \
    ${STUDENT:+"--student=$STUDENT"} ${version:+"--compiler=$version"} $begun
