# Functions of labs/course's scripts that read a lab's files. To be sourced in the root of the tree.
. labs/course/words.sh
export LC_ALL=C # in other locales awk may write 17,5 and read 17 from 17.5, and sort orders differ

# The folder of a lab by its number: 03 -> labs/03-allreduce.
lab_folder() {
    for folder in labs/"$1"-*/; do
        [ -f "$folder/lab.conf" ] && { echo "${folder%/}"; return; }
    done
    words no-lab "$1" "$(all_labs | tr '\n' ' ')" >&2
    return 2
}

all_labs() {
    for conf in labs/[0-9][0-9]-*/lab.conf; do
        [ -f "$conf" ] || continue
        number=${conf#labs/}
        echo "${number%%-*}"
    done
}

# The lines of a key, without the key, with build/labs replaced by $BUILD/labs.
conf_lines() { sed -n "s|\bbuild/labs/|${BUILD:-build}/labs/|g; s/^$2  *//p" "$1/lab.conf"; }

# The lines of a key with words for students (title, predict): for Chinese from lab.zh.conf, if it has them.
conf_words() { # FOLDER KEY
    chinese=$1/lab.zh.conf
    [ "$language" = zh ] && [ -f "$chinese" ] || chinese=/dev/null
    awk -v key="$2" -v chinese="$chinese" '
        $1 != key { next }
        { line = $0; sub(/^[^ ]* */, "", line); name = key == "title" ? key : $2 }
        FILENAME == chinese { words[name] = line; next }
        { print (name in words) ? words[name] : line }' "$chinese" "$1/lab.conf"
}

# Files from which a lab cuts functions, each once.
cut_files() { conf_lines "$1" cut | cut -d' ' -f1 | sort -u; }

# Files with the same functions for GPUs: also cut from the handout, but not written by students.
twin_files() { conf_lines "$1" twin | cut -d' ' -f1 | sort -u; }

# Copies a file without the bodies of its labs' functions and of their twins: cut_file FILE TO. (The caller has a
# variable "lab".)
cut_file() {
    cp "$1" "$2" || return 1
    for any_lab in $(all_labs); do # callers use $lab
        { conf_lines "$(lab_folder "$any_lab")" cut; conf_lines "$(lab_folder "$any_lab")" twin; } | while read -r file name; do
            [ "$file" = "$1" ] || continue
            awk -v name="$name" -v lab="$any_lab" -f labs/course/cut.awk "$2" >"$2.cut" && mv "$2.cut" "$2" || exit 1
        done || return 1
    done
    # the first include: below it nothing can be conditional
    cmp -s "$1" "$2" || sed -i '0,/^#include/s//#include "common\/base\/todo.h"\n#include/' "$2"
}

# A lab's planted bugs, "NAME CHECK" each.
bugs_of() { sed -n 's/^bug \([^: ]*\): */\1 /p' "$1/bugs.txt"; } # FOLDER

# Correct solutions of a different form, by name.
forms_of() { sed -n 's/^form //p' "$1/correct.txt"; } # FOLDER

# Files that a lab's planted programs change, but its students do not: those that planted.txt lists, if it exists.
changed_by_planted() { [ ! -f "$1/planted.txt" ] || sed -n 's/^files //p' "$1/planted.txt" | tr ' ' '\n'; }

# Plants a bug, or a correct solution of a different form, in the product's code of that lab in the folder CODE.
plant() { # FOLDER NAME CODE
    list=$1/bugs.txt planted_into=$(cut_files "$1")
    grep -qxF "form $2" "$1/correct.txt" && list=$1/correct.txt
    [ -f "$1/planted.txt" ] && grep -q "^bug $2:" "$1/planted.txt" && list=$1/planted.txt planted_into=$(changed_by_planted "$1")
    # shellcheck disable=SC2046
    awk -v name="$2" -f labs/course/plant.awk "$list" $(echo "$planted_into" | sed "s|^|$3/|")
}

# The checksums of all labs' cut files, and the files of this tree whose checksums differ from the recorded ones, on one
# line.
original_sums() { for any_lab in $(all_labs); do cut_files "$(lab_folder "$any_lab")"; done | sort -u | xargs cksum; }
changed_files() { original_sums 2>/dev/null | grep -vxF -f labs/course/originals | cut -d' ' -f3 | paste -sd' ' -; }

# A full checkout is its own reference. If a lab's file was changed in it, committed or not, the change would be
# compared with itself, and get full marks. (A handout has a reference that was built before.)
refuse_changed_tree() {
    [ -z "${COURSE_REFERENCE:-}" ] || return 0
    changed=$(changed_files)
    [ -z "$changed" ] || { words tree-changed "$changed" >&2; exit 2; }
}

# A larger file is refused, as a solution and as an answer.
most_bytes=1000000

# The folder $code without links in its path, even if its name ends with a newline.
code_root() { root=$(cd -P "$code" 2>/dev/null && pwd -P && echo .) && root=${root%??}; }

# Whether FILE is a regular file in $code: readable, at most $most_bytes, and without a link that leads out of the
# folder.
is_own() { # FILE
    [ -f "$code/$1" ] && [ -r "$code/$1" ] && code_root || return 1
    case $(realpath "$code/$1") in "${root%/}"/*) ;; *) return 1 ;; esac
    [ -z "$(find -H "$(realpath "$code/$1")" -size +$((most_bytes / 512)) 2>/dev/null)" ]
}

# Whether a function of the lab ($folder, in $code) is still a stub.
is_unwritten() { for file in $(cut_files "$folder"); do is_own "$file" && grep -q 'ls_todo(' "$code/$file" && return; done; return 1; }

# One checksum of a student's files for a lab ($folder, in $code): a verdict belongs to that code only.
code_sum() { for file in $(cut_files "$folder"); do ! is_own "$file" || cat "$code/$file"; done | ${1:-cksum}; }

# The last line "NAME: PREDICTION" of the lab's predict.txt ($notes); the colon may be a Chinese one.
predicted() { sed -n "s/^$1\(:\|：\) *\([^ ].*\)$/\2/p" "$notes" 2>/dev/null | tail -1; }

# Whether a prediction is right: PREDICTION RESULT.
is_right() { MINE=$1 IS=$2 awk -f labs/course/is_right.awk; }
