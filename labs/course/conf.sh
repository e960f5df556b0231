# What labs/course's scripts read of a lab, sourced by them. Needs: the tree as the present folder.
. labs/course/words.sh
export LC_ALL=C # elsewhere awk may write 17,5 and read 17 of 17.5, and sort has other orders

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

# The lines of a key, without it. They say build/labs, wherever that is ($BUILD).
conf_lines() { sed -n "s|\bbuild/labs/|${BUILD:-build}/labs/|g; s/^$2  *//p" "$1/lab.conf"; }

# The lines of a key whose words a student reads (title, predict): from lab.zh.conf in Chinese, as far as that has them.
conf_words() { # FOLDER KEY
    chinese=$1/lab.zh.conf
    [ "$language" = zh ] && [ -f "$chinese" ] || chinese=/dev/null
    awk -v key="$2" -v chinese="$chinese" '
        $1 != key { next }
        { line = $0; sub(/^[^ ]* */, "", line); name = key == "title" ? key : $2 }
        FILENAME == chinese { words[name] = line; next }
        { print (name in words) ? words[name] : line }' "$chinese" "$1/lab.conf"
}

# Files of which a lab takes functions out, each once; and "FILE FUNCTION" for each.
cut_files() { conf_lines "$1" cut | cut -d' ' -f1 | sort -u; }

# Files with the same functions once more, for GPUs: out of the handout too, but not the student's to write.
twin_files() { conf_lines "$1" twin | cut -d' ' -f1 | sort -u; }

# Copies a file with the bodies of its labs' functions, and of their twins, taken out: cut_file FILE TO. (The caller has a variable "lab".)
cut_file() {
    cp "$1" "$2" || return 1
    for any_lab in $(all_labs); do # the callers have a $lab of their own
        { conf_lines "$(lab_folder "$any_lab")" cut; conf_lines "$(lab_folder "$any_lab")" twin; } | while read -r file name; do
            [ "$file" = "$1" ] || continue
            awk -v name="$name" -v lab="$any_lab" -f labs/course/cut.awk "$2" >"$2.cut" && mv "$2.cut" "$2" || exit 1
        done || return 1
    done
    # the first include that is there: below it nothing can be conditional
    cmp -s "$1" "$2" || sed -i '0,/^#include/s//#include "common\/base\/todo.h"\n#include/' "$2"
}

# A lab's planted bugs, "NAME CHECK" each.
bugs_of() { sed -n 's/^bug \([^: ]*\): */\1 /p' "$1/bugs.txt"; } # FOLDER

# Correct solutions of another form, by name.
forms_of() { sed -n 's/^form //p' "$1/correct.txt"; } # FOLDER

# Files that the planted programs of a lab change and its students do not: those that planted.txt lists, if there is one.
changed_by_planted() { [ ! -f "$1/planted.txt" ] || sed -n 's/^files //p' "$1/planted.txt" | tr ' ' '\n'; }

# Puts a bug, or a correct solution of another form, into the product's code of that lab in the folder CODE.
plant() { # FOLDER NAME CODE
    list=$1/bugs.txt planted_into=$(cut_files "$1")
    grep -qxF "form $2" "$1/correct.txt" && list=$1/correct.txt
    [ -f "$1/planted.txt" ] && grep -q "^bug $2:" "$1/planted.txt" && list=$1/planted.txt planted_into=$(changed_by_planted "$1")
    # shellcheck disable=SC2046
    awk -v name="$2" -f labs/course/plant.awk "$list" $(echo "$planted_into" | sed "s|^|$3/|")
}

# The sums of all labs' cut files, and those files of this tree whose sums are not the recorded ones, on one line.
original_sums() { for any_lab in $(all_labs); do cut_files "$(lab_folder "$any_lab")"; done | sort -u | xargs cksum; }
changed_files() { original_sums 2>/dev/null | grep -vxF -f labs/course/originals | cut -d' ' -f3 | paste -sd' ' -; }

# A full checkout is its own reference. Where a lab's file was changed in it, committed or not, the change would be compared with itself,
# and get full marks. (In a handout the reference was built before.)
refuse_changed_tree() {
    [ -z "${COURSE_REFERENCE:-}" ] || return 0
    changed=$(changed_files)
    [ -z "$changed" ] || { words tree-changed "$changed" >&2; exit 2; }
}

# Larger is no solution, and no answer either.
most_bytes=1000000

# The folder $code without links in its path, also where its name ends with an end of line.
code_root() { root=$(cd -P "$code" 2>/dev/null && pwd -P && echo .) && root=${root%??}; }

# Whether $code has this as a regular file of its own: to be read, of at most $most_bytes, and with no link that leads out of the folder.
is_own() { # FILE
    [ -f "$code/$1" ] && [ -r "$code/$1" ] && code_root || return 1
    case $(realpath "$code/$1") in "${root%/}"/*) ;; *) return 1 ;; esac
    [ -z "$(find -H "$(realpath "$code/$1")" -size +$((most_bytes / 512)) 2>/dev/null)" ]
}

# Whether a function of the lab ($folder, in $code) is still a stub.
is_unwritten() { for file in $(cut_files "$folder"); do is_own "$file" && grep -q 'ls_todo(' "$code/$file" && return; done; return 1; }

# What a student wrote for a lab ($folder, in $code), as one sum: a verdict is of that code and of no other.
code_sum() { for file in $(cut_files "$folder"); do ! is_own "$file" || cat "$code/$file"; done | ${1:-cksum}; }

# The last line "NAME: what the student predicts" of the lab's predict.txt ($notes); the colon may be a Chinese one.
predicted() { sed -n "s/^$1\(:\|：\) *\([^ ].*\)$/\2/p" "$notes" 2>/dev/null | tail -1; }

# Whether a prediction is what came out: PREDICTION RESULT.
is_right() { MINE=$1 IS=$2 awk -f labs/course/is_right.awk; }
