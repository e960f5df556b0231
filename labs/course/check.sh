#!/bin/sh
# course-check: checks that the labs, their graders and their planted bugs are consistent. `make course-check` calls it.
# usage: labs/course/check.sh LAB...    RUNS=20: number of gradings of the reference; BUGS='no_*': only these bugs; FORMS= likewise; PARTS='handout stubs': only these
#                                       parts, of all (below); "entries" only checks that those of bugs.txt and correct.txt apply
set -u
export LS_LANG=en # it reads the grader's output
. labs/course/conf.sh
work=$BUILD/course-check/$(echo "$*${PARTS:+ $PARTS}" | tr ' ' -) # a lab's parts may be checked in parallel
rm -rf "$work"
mkdir -p "$work"
bad=0 count=0

complain() {
    echo "  $*"
    bad=$((bad + 1))
}

# grade CODE LAB: its output in $work/said; its exit status
grade() { PROBE_ONLY=1 labs/course/grade.sh "$1" "$work/build" "$2" >"$work/said" 2>&1; }

# Makes a folder with the product's files of the lab.
submission() {
    rm -rf "$work/code"
    for file in $(cut_files "$folder"); do mkdir -p "$work/code/$(dirname "$file")" && cp "$file" "$work/code/$file"; done
}

# A submission with a bug, or in another form.
submission_with() {
    submission
    plant "$folder" "$1" "$work/code" >"$work/planted" 2>&1 || { complain "$1 does not apply: $(head -1 "$work/planted")"; return 1; }
}

first_failed() { sed -n 's/^  \([a-z0-9-]*\)  *0 of .*/\1/p' "$work/said" | head -1; }

# Every planted bug fails at the check that it names, and at no earlier one. check_bugs 0: the first of every two bugs,
# 1: the second.
check_bugs() {
    number=0
    bugs_of "$folder" >"$work/bugs"
    while read -r bug named <&3; do
        # shellcheck disable=SC2254
        case $bug in ${BUGS:-*}) number=$((number + 1)) ;; *) continue ;; esac
        [ $((number % 2)) -ne "$1" ] || continue
        count=$((count + 1))
        submission_with "$bug" || continue
        no_asan=1
        [ "$named" = memory ] && no_asan=''
        NO_ASAN=$no_asan UNTIL_BROKEN=1 grade "$work/code" "$lab"
        first=$(first_failed)
        [ "$first" = "$named" ] || { complain "lab $lab, bug $bug: fails first at '$first', and should at '$named'"; cat "$work/said"; }
    done 3<"$work/bugs"
    [ $number -gt 0 ] || complain "lab $lab has no bugs${BUGS:+ like $BUGS}"
}

check_first_bugs() { check_bugs 0; }
check_other_bugs() { check_bugs 1; }

# The product's own code gets all points each time, also if it uses the allowed extras. All texts of its probe have a
# Chinese translation.
check_reference() {
    count=$((count + 1))
    submission
    file=$(cut_files "$folder" | tail -1)
    cat labs/course/cheats/harmless.txt >>"$work/code/$file"
    grade "$work/code" "$lab" || { complain "lab $lab: what may be used costs points"; cat "$work/said"; }
    for run in $(seq "${RUNS:-2}"); do
        count=$((count + 1))
        submission
        grade "$work/code" "$lab" || { complain "lab $lab: the reference lost points (run $run)"; cat "$work/said"; }
    done
    for seed in 1 2; do
        count=$((count + 1))
        "$ORACLE/grade" --lab="$folder" --reference="$work/build/$lab/reference" --untranslated --seed=$seed >"$work/untranslated" ||
            { complain "lab $lab: texts of the probe without Chinese (cases.zh.txt), such as"; sort -u "$work/untranslated" | head -5; }
    done
}

# Correct code of a different form also gets all points; each lab has at least two such forms.
check_forms() {
    forms=0
    for form in $(forms_of "$folder"); do
        # shellcheck disable=SC2254
        case $form in ${FORMS:-*}) ;; *) continue ;; esac
        count=$((count + 1)) forms=$((forms + 1))
        submission_with "$form" || continue
        grade "$work/code" "$lab" || { complain "lab $lab: correct code of the form $form lost points"; cat "$work/said"; }
    done
    [ "${FORMS:-}" ] || [ $forms -ge 2 ] || complain "lab $lab has $forms correct solutions of another form, and should have two"
}

# Unwritten code gets no points: stubs as handed out, and bodies that only return. (The memory check counts only if
# another one holds. So it is not needed here, which saves half of the building.)
check_stubs() {
    count=$((count + 2))
    submission
    for file in $(cut_files "$folder"); do cut_file "$file" "$work/code/$file"; done
    NO_ASAN=1 grade "$work/code" "$lab"
    [ $? -eq 3 ] || { complain "lab $lab: stubs do not end with status 3"; cat "$work/said"; }
    for file in $(cut_files "$folder"); do sed -i '/ls_todo(/d' "$work/code/$file"; done
    NO_ASAN=1 grade "$work/code" "$lab"
    grep -q "^lab $lab: 0 of " "$work/said" || { complain "lab $lab: bodies that only return get points"; cat "$work/said"; }
}

# Code that cheats: its name, and the text that replaces the first body.
cheats='exits|extern void exit(int); exit(0);
prints|printf("end\tring-order\n");
starts a process|extern int fork(void); fork();
makes system calls|__asm__ volatile("syscall" ::: "memory");
writes files|extern int open(const char *, int, ...); open("seen", 65);
never ends|for (volatile int i = 0;; i++) {}
allocates without end|for (;;) memset(malloc(1 << 28), 1, 1 << 28);
is a link to the reference|
includes the reference|
takes the place of the confinement|'

check_cheats() {
    first=$(cut_files "$folder" | head -1)
    printf '%s\n%s\n' "$cheats" "calls the reference|$(conf_lines "$folder" cheat)" >"$work/cheats"
    while IFS='|' read -r name body <&3; do
        count=$((count + 1))
        submission
        for file in $(cut_files "$folder"); do cut_file "$file" "$work/code/$file"; done
        BODY=$body awk '/ls_todo\(/ && !done { print "    " ENVIRON["BODY"]; done = 1; next } { print }' "$work/code/$first" >"$work/cheat.c"
        { printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'; cat "$work/cheat.c"; } >"$work/code/$first"
        case $name in
        'is a link to the reference') ln -sf "$PWD/$first" "$work/code/$first" ;;
        'includes the reference') printf '#include <%s>\n' "$first" >"$work/code/$first" ;;
        'takes the place of the confinement')
            cp "$first" "$work/code/$first"
            printf '#include <stdbool.h>\nbool probe_confine(int fd);\nbool probe_confine(int fd) { return fd >= 0; }\n' >>"$work/code/$first"
            ;;
        esac
        gets_nothing
    done 3<"$work/cheats"
    check_cheats_below
}

# Checks that the code in $work/code, which $name, gets no points, and gets them soon.
gets_nothing() {
    began=$(date +%s)
    NO_ASAN=1 grade "$work/code" "$lab"
    grep -q "^lab $lab: 0 of " "$work/said" || { complain "lab $lab: code that $name gets points"; cat "$work/said"; }
    [ $(($(date +%s) - began)) -le 60 ] || complain "lab $lab: code that $name costs more than a minute"
}

# Cheats that are appended to correct code, or to stubs.
check_cheats_below() {
    sed -n 's/^below //p' labs/course/cheats/below.txt >"$work/below"
    while read -r base name <&3; do
        count=$((count + 1))
        submission
        [ "$base" = product ] || for file in $(cut_files "$folder"); do cut_file "$file" "$work/code/$file"; done
        {
            printf '#include <stddef.h>\n'
            awk -v head="below $base $name" -v reference="$(realpath "$work/build")/$lab/reference" '
                /^below / { on = $0 == head; next } on { gsub(/REFERENCE/, reference); print }' labs/course/cheats/below.txt
        } >>"$work/code/$first"
        gets_nothing
    done 3<"$work/below"
}

# The significant lines of the functions that are cut from FILE.
removed_lines() {
    cut_file "$1" "$work/cut.c" || complain "$1 cannot be cut"
    diff "$1" "$work/cut.c" | sed -n 's/^< *//p' | awk 'length >= 25'
}

# The handout has no line of the bodies that are cut out, and no file for instructors. A line that also exists elsewhere
# in the product does not count.
check_handout() {
    rm -rf "$work/handout"
    labs/course/handout.sh "$work/handout" >"$work/said" 2>&1 || { complain 'make handout failed'; cat "$work/said"; return; }
    for lab; do
        folder=$(lab_folder "$lab") || exit 2
        for file in $(cut_files "$folder"); do
            count=$((count + 1)) own=0
            removed_lines "$file" >"$work/removed"
            while IFS= read -r line <&3; do
                [ "$(git grep -cF -e "$line" -- '*.c' '*.h' | awk -F: '{ n += $2 } END { print n + 0 }')" -eq 1 ] || continue
                own=$((own + 1))
                found=$(grep -rlF --exclude-dir=reference -e "$line" "$work/handout" | head -1)
                [ -z "$found" ] || complain "the handout has a line of lab $lab's $file in ${found#"$work"/handout/}: $line"
            done 3<"$work/removed"
            [ $own -gt 0 ] || complain "$file: no line of what is out is its own, so nothing was checked"
        done
    done
    found=$(find "$work/handout" -name "instructors*.md" -o -name bugs.txt -o -name correct.txt -o -name planted.txt -o -name .git | head -1)
    [ -z "$found" ] || complain "the handout has $found"
    check_twins
    head -n 5 "$work/handout/README.md" | grep -q 'handout of the course' || complain "the handout's README.md does not begin with the course"
    make -C "$work/handout" help >"$work/said" 2>&1 || complain 'make help fails in the handout'
    grep -E '^  (handout|class|class-check|course-check|hostile|test-hosts) ' "$work/said" && complain 'make help offers in the handout what is not there'
    rm -rf "$work/handout"
}

# The picture that both sheets show exists and is small, and its script draws it.
check_picture() {
    [ -f "$folder/picture.gp" ] || return 0
    grep -q '](picture.png)' "$folder/README.md" && grep -q '](picture.png)' "$folder/README.zh.md" || complain "lab $lab: a sheet does not show its picture"
    [ "$(wc -c <"$folder/picture.png")" -lt 60000 ] || complain "lab $lab: its picture has 60 kB or more"
    labs/course/pictures.sh --out "$work/pictures" "$lab" >"$work/said" 2>&1 && [ -s "$work/pictures/$lab.png" ] && [ "$(wc -l <"$work/said")" -eq 1 ] ||
        { complain "lab $lab: its picture cannot be drawn"; cat "$work/said"; }
}

# A copy of the tree in which a lab's file was changed and committed is not a reference: make lab, handout and grade
# refuse it.
check_changed_tree() {
    count=$((count + 3))
    rm -rf "$work/tree"
    mkdir -p "$work/tree" "$work/code" && git ls-files | grep -v '^data/' | tar -cf - -T - | tar -xf - -C "$work/tree" || exit 1
    file=$(cut_files "$(lab_folder "$1")" | head -1)
    echo '/* changed */' >>"$work/tree/$file"
    (cd "$work/tree" && git init -q . && git add "$file" && git -c user.name=a -c user.email=a@example.org commit -qm changed) || exit 1
    built=$(realpath "$BUILD") library=$(realpath "$COURSE_LIB") code=$(realpath "$work/code")
    for command in "grade.sh . $code $1" "lab.sh . $code $1" "handout.sh $code/handout"; do
        (cd "$work/tree" && BUILD=$built COURSE_LIB=$library PREDICT=skip sh -c "labs/course/$command") >"$work/said" 2>&1
        [ $? -eq 2 ] && grep -qF "$file" "$work/said" && [ "$(wc -l <"$work/said")" -eq 1 ] ||
            { complain "a tree in which $file was changed: $command is not refused in one line"; cat "$work/said"; }
    done
    labs/course/originals.sh check 2>"$work/said" || complain "$(cat "$work/said")"
    rm -rf "$work/tree"
}

# No body that is cut out exists elsewhere in the handout under other names, in any language (twins.awk); and a planted
# twin is found.
check_twins() {
    for lab in $(all_labs); do
        conf_lines "$(lab_folder "$lab")" cut | while read -r file name; do
            echo "@ $lab/$name"
            awk -v name="$name" -v body=1 -f labs/course/cut.awk "$file"
        done
    done >"$work/bodies"
    count=$((count + 2))
    twins "$work/handout" >"$work/twins" && [ ! -s "$work/twins" ] || { complain 'solutions of labs stand elsewhere in the handout:'; cat "$work/twins"; }
    awk -v name=ls_statistics_merge -v body=1 -f labs/course/cut.awk kernels/cpu/statistics.c |
        sed 's/total->/into./g; s/more\./from./g; s/apart/shift/g; s/double //; s/;//' >"$work/handout/docs/planted.py"
    twins "$work/handout" | grep -q '^13/ls_statistics_merge .*docs/planted\.py' || complain 'a solution that was planted in docs/planted.py is not found'
}

# twins FOLDER: prints the twins in its code and pages; exit status 1 if there is one. (Runs in the folder, so that the
# short names fit into one run of awk.)
twins() {
    bodies=$(realpath "$work/bodies") finder=$PWD/labs/course/twins.awk
    (cd "$1" && find . -type f | grep -E '\.(c|h|cu|cuh|cpp|md|awk|patch|py|sh|gp)$' | grep -v '^\./reference/' | sort | xargs awk -f "$finder" "$bodies")
}

# Every command of the sheet succeeds in the product's tree, or exits with the status in the sheet. And its figures are
# reproduced on this machine, within their bounds.
check_sheet() {
    count=$((count + 1))
    DOCS_DEADLINE_S=600 tests/check_docs.sh --run "$folder/README.md" >"$work/said" 2>&1 || { complain "lab $lab: a command of its sheet failed"; cat "$work/said"; }
    labs/course/figures.sh check "$lab" >"$work/said" 2>&1 || { complain "lab $lab: its sheet has figures that are not this machine's"; cat "$work/said"; }
    check_picture
}

check_entries() {
    for name in $(bugs_of "$folder" | cut -d' ' -f1) $(forms_of "$folder"); do
        count=$((count + 1))
        submission_with "$name"
    done
    for name in $(conf_lines "$folder" planted-beside | cut -d' ' -f1); do
        count=$((count + 1))
        rm -rf "$work/code"
        for file in $(changed_by_planted "$folder"); do mkdir -p "$work/code/$(dirname "$file")" && cp "$file" "$work/code/$file"; done
        plant "$folder" "$name" "$work/code" >"$work/planted" 2>&1 || complain "$name does not apply: $(head -1 "$work/planted")"
    done
}

parts=$(echo " ${PARTS:-handout changed_tree sheet reference forms cheats stubs bugs} " | sed 's/ bugs / first_bugs other_bugs /')
is_asked() { case " $parts " in *" $1 "*) ;; *) false ;; esac }

# Checks one lab, or several in parallel, each by its own scripts, whose output is printed when all have ended.
check_lab() {
    folder=$(lab_folder "$lab") || exit 2
    for part in sheet reference forms cheats stubs entries first_bugs other_bugs; do is_asked "$part" && "check_$part"; done
}

# A lab's sheet, its bugs and the rest are independent, so each has its own script. The last labs begin: 15 takes
# longest. Much of the time they wait for lost ranks or deadlines, so there are two scripts for each core.
check_labs() {
    rest=''
    for part in reference forms cheats stubs entries; do if is_asked $part; then rest="$rest $part"; fi; done
    for lab; do
        for part in sheet first_bugs other_bugs; do if is_asked $part; then echo "$lab $part"; fi; done
        if [ "$rest" ]; then echo "$lab$rest"; fi
    done | sort -r | xargs -P $((2 * $(nproc))) -r -L 1 sh -c \
        'lab=$2 out=$1/$2-$3; shift 2; PARTS=$* "$0" "$lab" >"$out.log" 2>&1; echo $? >"$out.status"' "$0" "$work"
    for log in "$work"/*.log; do
        [ -f "$log" ] || continue
        sed '$d' "$log"
        count=$((count + $(tail -n 1 "$log" | sed 's/[^0-9]*\([0-9]* of \)*\([0-9]*\) cases.*/\2/')))
        [ "$(cat "${log%.log}.status")" -eq 0 ] || bad=$((bad + 1))
    done
}

is_asked handout && check_handout "$@"
is_asked changed_tree && check_changed_tree "$@"
if [ $# -eq 1 ]; then lab=$1 && check_lab; else check_labs "$@"; fi
[ $bad -eq 0 ] && echo "course-check: $count cases, all as they should be" && exit 0
echo "course-check: $bad of $count cases failed"
exit 1
