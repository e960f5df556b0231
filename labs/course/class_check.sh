#!/bin/sh
# class-check: a class of some sixty made-up students, graded by `make class`; every row must be right. `make class-check` calls it.
# usage: labs/course/class_check.sh LAB...
# Six have the product's code, four the handout's, twelve one planted bug each; the others hand in half of the code,
# nothing, or code that does not compile, crashes, exits, never ends or writes files; one has an awkward name. Expected
# for a lab: full; zero; a check's name: this check fails; any: another lab also edits this file, so its verdict is not
# predicted. DRAW (default 1), a number, chooses the bugs.
set -u
draw=$((${DRAW:-1}))
. labs/course/conf.sh
work=$BUILD/class-check
rm -rf "$work"
mkdir -p "$work/students"
expected=$work/expected.csv

# Puts the product's files into a student's folder. NAME_IN_CSV: the name in the CSV, if it differs.
student() { # FOLDER [NAME_IN_CSV]
    name=${2:-$1} code=$work/students/$1
    for lab in $labs; do
        for file in $(cut_files "$(lab_folder "$lab")"); do
            [ -f "$code/$file" ] || { mkdir -p "$code/$(dirname "$file")" && cp "$file" "$code/$file"; } || exit 1
        done
    done
}

# expect LAB WORD: expects WORD of this lab, any of labs that share a changed file, and full of the others.
expect() {
    for lab in $labs; do
        word=full
        for file in $(cut_files "$(lab_folder "$lab")"); do [ -f "$code/$file" ] && cmp -s "$file" "$code/$file" || word=any; done
        [ "$lab" = "$1" ] && word=$2
        printf '%s,%s,%s\n' "$name" "$lab" "$word" >>"$expected"
    done
}

stub() { for file in $(cut_files "$(lab_folder "$1")"); do cut_file "$file" "$code/$file"; done; }

# Writes CODE as the body of the lab's first function; the rest is as handed out.
write_instead() { # LAB CODE
    stub "$1"
    file=$(cut_files "$(lab_folder "$1")" | head -1)
    BODY=$2 awk '/ls_todo\(/ && !done { print "    " ENVIRON["BODY"]; done = 1; next } { print }' "$code/$file" >"$code/$file.new" || exit 1
    { printf '#include <stdlib.h>\n'; cat "$code/$file.new"; } >"$code/$file"
    rm "$code/$file.new"
}

# The n-th of the labs, modulo their number.
nth() { set -- "$1" "$(echo "$labs" | wc -w)"; echo "$labs" | tr ' ' '\n' | sed -n "$((($1 - 1) % $2 + 1))p"; }

labs=$(echo "$*")
for i in 1 2 3 4 5 6; do student "writes-all-$i" && expect none full; done
for i in 1 2 3 4; do
    student "writes-nothing-$i"
    for lab in $labs; do stub "$lab" && echo "$name,$lab,zero" >>"$expected"; done
done
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    lab_of_bug=$(nth $((i * 3)))
    bugs_of "$(lab_folder "$lab_of_bug")" >"$work/bugs"
    count=$(wc -l <"$work/bugs")
    bug=$(sed -n "$(((draw * 7 + i * 5) % count + 1))p" "$work/bugs")
    student "bug-$i-${bug% *}"
    plant "$(lab_folder "$lab_of_bug")" "${bug% *}" "$code" || exit 1
    expect "$lab_of_bug" "${bug#* }"
done
student half-of-it
for lab in $labs; do case $lab in *[13579]) stub "$lab" ;; esac; done
for lab in $labs; do
    word=full
    for file in $(cut_files "$(lab_folder "$lab")"); do [ -f "$code/$file" ] && cmp -s "$file" "$code/$file" || word=any; done
    case $lab in *[13579]) word=zero ;; esac
    echo "$name,$lab,$word" >>"$expected"
done
name=no-files && mkdir -p "$work/students/$name"
for lab in $labs; do echo "$name,$lab,zero" >>"$expected"; done
student no-c
lab_of_bug=$(nth 1) file=$(cut_files "$(lab_folder "$(nth 1)")" | head -1)
echo 'this is no C' >>"$code/$file" && expect "$lab_of_bug" zero
student crashes && write_instead "$(nth 2)" '*(volatile int *)16 = 1;' && expect "$(nth 2)" zero
student ends-the-program && write_instead "$(nth 3)" 'extern void exit(int); exit(0);' && expect "$(nth 3)" zero
student never-ends && write_instead "$(nth 4)" 'for (volatile int i = 0;; i++) {}' && expect "$(nth 4)" zero
student writes-files && write_instead "$(nth 5)" 'extern int open(const char *, int, ...); open("seen", 65);' && expect "$(nth 5)" zero

# Names with special characters for spreadsheets, CSV or these scripts.
student '王 小明\054, jr.' '王 小明%5C054%2C jr.' && expect none full
student lines.csv && expect none full
student rows && expect none full
student reference && expect none full
student alice && stub "$(nth 1)" && expect "$(nth 1)" zero
student 'alice
' alice%0A && expect none full
student '=1+1' %3D1%2B1 && expect none full
student '"quoted"' %22quoted%22 && expect none full
student -n %2Dn && expect none full
student '%2Dn' %252Dn && stub "$(nth 2)" && expect "$(nth 2)" zero
student '*' %2A && expect none full

# A link gets a row, and no points.
ln -s alice "$work/students/bob"
for lab in $labs; do echo "bob,$lab,zero" >>"$expected"; done

# Replaces one lab's first file by one that is not a regular file, or by a text that must not be compiled.
attacked=$(nth 3) first=$(cut_files "$(lab_folder "$(nth 3)")" | head -1)
attack() { student "$1" && file=$first && rm -f "$code/$file" && "$1" "$code/$file" && expect "$attacked" zero; }
is_fifo() { mkfifo "$1"; }
is_zeros() { ln -s /dev/zero "$1"; }
is_terminal() { ln -s /dev/ptmx "$1"; }
is_folder() { mkdir "$1"; }
is_reference() { ln -s "$PWD/$file" "$1"; }
is_sparse() { truncate -s 100G "$1"; }
is_not_readable() { if [ "$(id -u)" -eq 0 ]; then ln -s /nowhere "$1"; else cp "$file" "$1" && chmod 0 "$1"; fi; }
has_zero_bytes() { { cat "$file" && printf '\000'; } >"$1"; }
has_400000_errors() { { cat "$file" && seq 400000 | sed 's/.*/a&;/'; } >"$1" && [ "$(wc -c <"$1")" -gt 1000000 ]; }
has_100000_errors() { { cat "$file" && seq 100000 | sed 's/.*/a&;/'; } >"$1"; }
includes_itself() { { cat "$file" && printf '#include __FILE__\n#include __FILE__\n'; } >"$1"; }
includes_twice() {
    { cat "$file" && echo '#include "twice.h"'; } >"$1"
    printf '#include "twice.h"\n#include "twice.h"\n' >"$(dirname "$1")/twice.h"
}
includes_a_device() { { cat "$file" && echo '#include "/dev/ptmx"'; } >"$1"; }
includes_a_fifo() { { cat "$file" && echo '#include "fifo.h"'; } >"$1" && mkfifo "$(dirname "$1")/fifo.h"; }
nests_deeply() { { cat "$file" && printf 'int deep =\n' && head -c 900000 /dev/zero | tr '\000' '(' | fold -w 9000 && echo '1;'; } >"$1"; }
grows_a_macro() {
    { cat "$file" && echo '#define A0 1 +' && seq 40 | awk '{ print "#define A" $1 " A" $1 - 1 " A" $1 - 1 }' && echo 'int grown = A40 1;'; } >"$1"
}
for attack in is_fifo is_zeros is_terminal is_folder is_reference is_sparse is_not_readable has_zero_bytes has_400000_errors has_100000_errors \
    includes_itself includes_twice includes_a_device includes_a_fifo nests_deeply grows_a_macro; do attack $attack || exit 1; done
student links-to-the-tree && file=$first && rm -rf "${code:?}/$(dirname "$file")" && ln -s "$PWD/$(dirname "$file")" "$code/$(dirname "$file")"
for any in $labs; do
    word=full
    for other in $(cut_files "$(lab_folder "$any")"); do # a file in that folder, or one that includes a header of it
        if [ "$(dirname "$other")" = "$(dirname "$file")" ] || grep -q "^#include \"$(dirname "$file")/" "$other"; then word=zero; fi
    done
    echo "$name,$any,$word" >>"$expected"
done

began=$(date +%s)
labs/course/class.sh "$work/students" "$work/graded" $labs || exit 1
took=$(($(date +%s) - began))
students=$(find "$work/students" -mindepth 1 -maxdepth 1 -exec printf . \; | wc -c)
awk -F, -v students="$students" -v took=$took '
    NR == FNR { if (FNR > 1) { row = $1 "," $2; points[row] += $4; of[row] += $5; got[row "," $3] = $4; seen[$1] = 1 } next }
    { lab = $2; word = $3; row = $1 "," lab; rows++
      if (!(row in of) || of[row] == 0) { print "  " row ": there is no row"; bad++ }
      else if (word == "full" && points[row] != of[row]) { print "  " row ": " points[row] " of " of[row] ", and all is right"; bad++ }
      else if (word == "zero" && points[row] != 0) { print "  " row ": " points[row] " points for nothing"; bad++ }
      else if (word != "full" && word != "zero" && word != "any" && (points[row] == of[row] || got[row "," word] != 0)) {
          print "  " row ": " points[row] " of " of[row] ", and " word " is broken"; bad++ } }
    END { for (s in seen) graded++
          if (graded != students) { print "  " graded " students were graded, and there are " students; bad++ }
          printf "class-check: %d students, %d labs of theirs, in %d s: %s\n", students, rows, took, bad ? bad " are wrong" : "every row is right"
          exit bad > 0 }' "$work/graded/class.csv" "$expected"
