#!/bin/sh
# A student's report as one HTML page: collects the data of each lab, lets build/course_report sanitise texts of others,
# and labs/course/report/page.awk lay them out. `make report` calls it.
# usage: labs/course/report.sh CODE OUT FILE LAB...   CODE: the tree with the student's files; OUT: where make lab and make grade have left what
#                                                     they found; FILE: the page. STUDENT: a name for it; LS_LANG=zh: in Chinese
# Labs that were not begun are left out. In a handout a missing answers.md is created with the sheet's questions.
# Exit status: 1 no lab is begun, or the page could not be written; 2 there is no such lab.
set -u
. labs/course/conf.sh
code=${1%/} top=$2 page=$3
shift 3
[ -d "$code" ] || { words no-folder "$code" >&2; exit 2; }
# The ending .html keeps the page from replacing one of its inputs, even by a link.
to=$(realpath "$page" 2>/dev/null) || to=''
case $to in *.html) [ ! -d "$to" ] ;; *) false ;; esac || { words no-page "$page" >&2; exit 2; }

# The file as handed out: the handout's copy, or the product's file without the functions.
handed_out() { # FILE TO
    mkdir -p "$(dirname "$2")" || return 1
    if [ -f "reference/handed-out/$1" ]; then cp "reference/handed-out/$1" "$2"; else cut_file "$1" "$2"; fi
}

# Whether a student's file is missing or regular: a link out of the folder would put another user's file into the page.
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

# Whether the code is the product's own, not a student's.
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

# The kind of a figure of lab.conf, from its mark and its command.
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
field() { tr '\t\r\n' '   ' | head -c 4000; }

harmless() { "${ORACLE:-$BUILD}/course_report" "$@"; } # --as=KIND FILE

# Prints a lab's facts for page.awk.
facts() {
    sheet=$folder/answers.md
    [ "$code" = . ] || sheet=$code/$sheet
    printf 'lab\t%s\t%s\nstate\t%s\nsheet\t%s\n' "$lab" "$(conf_words "$folder" title)" "$graded" "$(printf '%s' "$sheet" | field)"
    conf_words "$folder" predict | while read -r name question; do
        mine=$(predicted "$name" | tr -d '\n' | field)
        value=$(sed -n "s/^$name	//p" "$out/results" 2>/dev/null | tail -1 | tr -d '\n' | field)
        figure=$(conf_lines "$folder" figure | sed -n "s/^$name  *//p")
        sign='!='
        is_right "$mine" "$value" && sign='='
        printf 'predict\t%s\t%s\t%s\t%s\t%s\n' "$question" "$mine" "${value:+$sign}" "$(kind_of "${figure%% *}" "$figure")" "$value"
    done
    [ $language = en ] || sed -n "s/^check  *\([^ ]*\)  */check\t\1\t/p" "$folder/lab.zh.conf" 2>/dev/null
    # other lines of the student, such as notes after the run
    names=$(conf_lines "$folder" predict | cut -d' ' -f1 | paste -sd'|' -)
    grep -a '[^[:space:]]' "$notes" 2>/dev/null | grep -avE "^(#|($names)(:|：))" | head -200 | tr '\t\r' '  ' | cut -b1-4000 | sed 's/^/remark	/'
    [ "$graded" != same ] || harmless --as=grade "$out/grade.json" || return 1
    pictures "$out" "lab$lab"
    if [ -s "$out/report.diff" ]; then
        harmless --as=text "$out/report.diff" >"$out/report.code" || return 1
        printf 'code\t%s\n' "$out/report.code"
    fi
    if [ -f "$code/$folder/answers.md" ]; then
        harmless --as=answers "$code/$folder/answers.md" >"$out/report.answers" || return 1
        [ ! -s "$out/report.answers" ] || printf 'answers\t%s\n' "$out/report.answers"
    fi
    echo end
}

# A folder's pictures, with the text in each. Limited, since Chromium is slow with hundreds.
pictures() { # FOLDER PREFIX
    count=0
    for picture in "$1"/*.svg; do
        [ -e "$picture" ] && count=$((count + 1)) || continue
        [ $count -le 24 ] || continue
        drawn=$out/report.picture.$count name=$(printf '%s' "${picture##*/}" | field)
        if ! harmless --as=picture --prefix="$2-$count-" "$picture" >"$drawn"; then
            printf 'picture\t%s\t\t\t\t%s\n' "$name" "$(field <"$drawn")"
            continue
        fi
        said=$(sed 's/<[^>]*>/ /g' "$drawn" | grep -aoiE 'measured|virtual|replayed|computed|gnuplot [0-9]' | tr A-Z a-z) kinds=''
        for kind in measured virtual replayed computed; do case $said in *$kind*) kinds="$kinds $kind" ;; esac; done
        case $said in *gnuplot*) by=gnuplot ;; *) by='' ;; esac
        printf 'picture\t%s\t%s\t%s\t%s\n' "$name" "${kinds# }" "$by" "$drawn"
    done
    [ $count -le 24 ] || printf 'more\t%s\n' $((count - 24))
}

page() { awk -v folder=labs/course/report -v language=$language "$@" -f labs/course/report/page.awk; }

# The questions of the sheet, each followed by space for the answer: from the section that corresponds to "Questions" in
# the English sheet.
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

# Copies predict.txt, if it exists.
take_notes() {
    : >"$notes" || return 1
    is_fit "$folder/predict.txt" && is_fit "$folder/answers.md" || return 1
    [ ! -f "$code/$folder/predict.txt" ] || head -c 200000 "$code/$folder/predict.txt" >"$notes"
}

exec 3>&1
begun=''
mkdir -p "$top" && rm -f "$top/report.sums" || exit 1
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    out=$top/$lab notes=$top/$lab/report.predict
    mkdir -p "$out" && take_notes || exit 1
    graded=$(graded_code)
    diffs || exit 1
    is_begun || { rm -f "$out/report.diff"; continue; }
    make_room_for_answers >&3
    facts >"$out/report.facts" && harmless --as=text "$out/report.facts" || exit 1
    begun=1
done >"$top/report.labs"
[ "$begun" ] || { words nothing-begun >&2; exit 1; }
out=$top
{ printf 'programs\t%s\n' "$BUILD/results" && pictures "$BUILD/results" programs && echo end; } >"$top/report.facts" &&
    harmless --as=text "$top/report.facts" >>"$top/report.labs" && page -v part=labs -v sums="$top/report.sums" <"$top/report.labs" >"$top/report.sections" || exit 1
version=$(${CC:-cc} -v 2>&1 | grep -m1 ' version ' | cut -b1-120)
{ harmless --as=machine ${version:+"--compiler=$version"} && printf 'student\t%s\n' "$(printf '%s' "${STUDENT:-}" | field)"; } >"$top/report.facts" || exit 1
(: >"$to.new") 2>/dev/null || { words no-page "$page" >&2; exit 1; }
{ harmless --as=text "$top/report.facts" && cat "$top/report.sums"; } | page -v part=head >"$to.new" && cat "$top/report.sections" >>"$to.new" &&
    page -v part=foot </dev/null >>"$to.new" && mv "$to.new" "$to" && echo "report: $page" && exit
rm -f "$to.new"
exit 1
