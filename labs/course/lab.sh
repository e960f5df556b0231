#!/bin/sh
# A lab's session: predictions first, then its runs with the student's code, then each prediction beside what came out.
# `make lab LAB=03` calls it. PREDICT=skip leaves the predictions out.
# usage: labs/course/lab.sh CODE OUT LAB...
# Exit status 1: a prediction is missing (and nobody is there to be asked), the code does not build, or a run failed.
set -u
. labs/course/conf.sh
code=$1 top=$2
shift 2

# Lines "NAME: what the student predicts" of the lab's predict.txt.
predicted() { sed -n "s/^$1: *\([^ ].*\)$/\1/p" "$notes" 2>/dev/null | tail -1; }

# Asks what is not answered yet; on a terminal, at once.
ask() {
    missing=''
    conf_lines "$folder" predict >"$out/questions"
    while read -r name question <&3; do
        [ "$(predicted "$name")" ] && continue
        printf '%s\n    %s: ' "$question" "$name"
        if [ -t 0 ] && read -r answer && [ "$answer" ]; then
            printf '%s: %s\n' "$name" "$answer" >>"$notes"
        else
            echo '?'
            missing="$missing $name"
        fi
    done 3<"$out/questions"
    [ -z "$missing" ] && return
    echo "Not predicted yet:$missing. Write a line \"NAME: what you expect, and why\" for each into ${notes#./}, and come back; or PREDICT=skip."
    return 1
}

is_unwritten() { for file in $(cut_files "$folder"); do grep -q 'ls_todo(' "$code/$file" && return; done; return 1; }

run_all() {
    conf_lines "$folder" run >"$out/runs"
    while read -r command <&3; do
        printf '\n$ %s\n' "$command" | sed "s|\$ORACLE|$ORACLE|g; s/; test \$? -eq \([0-9]*\)\$/   # exit status \1/"
        sh -c "$command" 3<&- || { echo "this run failed"; return 1; }
    done 3<"$out/runs"
}

# Whether a prediction says what it is: it begins with the same word or words; "1,024" and "1024" are the same.
is_right() { case "$(echo "$1" | tr -d ',' | tr 'A-Z' 'a-z')" in "$(echo "$2" | tr 'A-Z' 'a-z')"*) ;; *) false ;; esac }

compare() {
    printf '\n%-18s %-22s   %s\n' '' 'it is' 'you predicted'
    while read -r name question <&3; do
        command=$(conf_lines "$folder" figure | sed -n "s/^$name  *\([=~][^ ]*\)  *//p")
        value=$(sh -c "$command" 3<&-) mine=$(predicted "$name") sign='!='
        is_right "$mine" "$value" && sign='='
        printf '%-18s %-22s %2s %s\n' "$name" "$value" "$sign" "$mine" | cut -c1-118
    done 3<"$out/questions"
}

for lab; do
    folder=$(lab_folder "$lab") || exit 2
    out=$top/$lab notes=$code/$folder/predict.txt
    mkdir -p "$out"
    echo "lab $lab, $(conf_lines "$folder" title) ($folder/README.md)"
    [ "${PREDICT:-}" = skip ] || ask || exit 1
    labs/course/build.sh planted "$lab" "$out" || exit 1
    if is_unwritten; then
        echo 'Not all of it is written yet: what runs is the reference.'
        for name in $(conf_lines "$folder" program); do cp "$ORACLE/$name" "$out/$name" || exit 1; done
        run_all && { [ "${PREDICT:-}" = skip ] || compare; } || exit 1
        continue
    fi
    if [ -z "$COURSE_REFERENCE" ]; then
        labs/course/build.sh reference "$lab" "$out" || exit 1
    else
        cp "$COURSE_REFERENCE/$lab/allowed" "$out/allowed"
    fi
    NO_ASAN=1 labs/course/build.sh student "$lab" "$code" "$out" || { cat "$out/refused"; exit 1; }
    run_all || exit 1
    [ "${PREDICT:-}" = skip ] || compare
done
