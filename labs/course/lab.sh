#!/bin/sh
# A lab's session: predictions first, then its runs with the student's code, then each prediction next to the result.
# `make lab LAB=03` calls it. PREDICT=skip skips the predictions.
# usage: labs/course/lab.sh CODE OUT LAB...
# LS_LANG=zh: output in Chinese (words.sh), if the lab has a lab.zh.conf.
# Exit status 1: a prediction is missing (and there is no terminal to ask for it), the code does not build, or a run
# failed.
set -u
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec labs/bench/shared/stoppable.sh "$0" "$@"
. labs/course/conf.sh
code=$1 top=$2
shift 2

# Appends an answer on a line of its own, even if the last line has no newline.
note() {
    mkdir -p "$(dirname "$notes")" && { [ -z "$(tail -c 1 "$notes" 2>/dev/null)" ] || echo >>"$notes"; } && printf '%s: %s\n' "$1" "$2" >>"$notes"
}

# Asks the unanswered questions; on a terminal, immediately.
ask() {
    missing=''
    conf_words "$folder" predict >"$out/questions"
    while read -r name question <&3; do
        [ "$(predicted "$name")" ] && continue
        printf '%s\n    %s: ' "$question" "$name"
        if [ -t 0 ] && read -r answer && [ "$answer" ]; then
            note "$name" "$answer" && continue
        else
            echo '?'
        fi
        missing="$missing $name"
    done 3<"$out/questions"
    [ -z "$missing" ] && return
    words not-predicted "$missing" "${notes#./}"
    return 1
}

run_all() {
    conf_lines "$folder" run >"$out/runs"
    while read -r command <&3; do
        printf '\n$ %s\n' "$command" | sed "s|\$ORACLE|$ORACLE|g; s/; test \$? -eq \([0-9]*\)\$/   # $(words_in "$language" status-comment) \1/"
        sh -c "$command" 3<&- || { words run-failed; return 1; }
    done 3<"$out/runs"
}

# Cuts longer lines between two characters. In UTF-8, most characters of three or more bytes are wide.
fit() {
    awk -v most="$1" '{
        columns = 0
        for (i = 1; i <= length($0); i++) {
            byte = substr($0, i, 1)
            if (byte ~ /[\200-\277]/) continue # continuation
            columns += byte ~ /[\340-\377]/ ? 2 : 1
            if (columns > most) break
        }
        print substr($0, 1, i - 1) }'
}

compare() {
    echo
    words compare
    : >"$out/results.new"
    while read -r name question <&3; do
        command=$(conf_lines "$folder" figure | sed -n "s/^$name  *\([=~][^ ]*\)  *//p")
        value=$(sh -c "$command" 3<&-) mine=$(predicted "$name") sign='!='
        printf '%s\t%s\n' "$name" "$(printf '%s' "$value" | tr '\n' ' ')" >>"$out/results.new"
        is_right "$mine" "$value" && sign='='
        printf '%-18s %-22s %2s %s\n' "$name" "$value" "$sign" "$mine" | fit 118
    done 3<"$out/questions"
    mv "$out/results.new" "$out/results" # for the report
}

refuse_changed_tree
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    out=$top/$lab notes=$code/$folder/predict.txt
    mkdir -p "$out"
    words session "$lab" "$(conf_words "$folder" title)" "$folder"
    [ "${PREDICT:-}" = skip ] || ask || exit 1
    [ -n "$COURSE_REFERENCE" ] || [ -z "$(conf_lines "$folder" planted; conf_lines "$folder" planted-beside)" ] || words building-planted "$lab"
    labs/course/build.sh planted "$lab" "$out" || exit 1
    if is_unwritten; then
        words reference-runs
        for name in $(conf_lines "$folder" program); do cp "$ORACLE/$name" "$out/$name" || exit 1; done
        run_all && { [ "${PREDICT:-}" = skip ] || compare; } || exit 1
        continue
    fi
    if [ -z "$COURSE_REFERENCE" ]; then
        words building-reference "$lab"
        labs/course/build.sh reference "$lab" "$out" || exit 1
    else
        cp "$COURSE_REFERENCE/$lab/allowed" "$out/allowed"
    fi
    words building-yours "$lab"
    NO_ASAN=1 labs/course/build.sh student "$lab" "$code" "$out" || { cat "$out/refused.words"; exit 1; }
    run_all || exit 1
    [ "${PREDICT:-}" = skip ] || compare
done
