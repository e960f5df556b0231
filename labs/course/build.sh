#!/bin/sh
# Builds a lab's probe, and its programs, with the student's files in place of the product's.
# usage: labs/course/build.sh reference LAB OUT          OUT/reference, and OUT/allowed: the names that its files call and define
#        labs/course/build.sh student LAB CODE OUT       OUT/probe, OUT/probe_asan and the lab's programs, from CODE's files
#        labs/course/build.sh own LAB OUT                OUT/own: the objects of the lab's probe
#        labs/course/build.sh planted LAB OUT            the lab's programs with planted bugs, for its sheet
# NO_ASAN=1: without OUT/probe_asan.
# student: exit status 1 and OUT/refused, a line, if the code does not compile or uses forbidden names (may_use);
#          OUT/refused.words has the same in the student's language (LS_LANG). The code is copied first, and everything reads
#          the copy, OUT/code. It is preprocessed once and compiled twice, so that it is the same text under AddressSanitizer.
# Settings come from labs/course/course.mk: CC, COURSE_CPPFLAGS, COURSE_CFLAGS, COURSE_LIB (the library), COURSE_LIBS, COURSE_OBJ, and
# COURSE_VARIANTS: for each instruction set that kernels/cpu/variant/ is built for, its flags and a |. Programs have the
# student's files for all of them; a probe has and runs only the first (all give the same bits), compiled with the usual
# flags, which takes a seventh of the time.
set -u
. labs/course/conf.sh

asan='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'

# bounded SECONDS COMMAND...: runs it with empty stdin, and kills it after that many seconds. Its child processes have
# their own limits.
bounded() { timeout --foreground -k 2 "$@" </dev/null; }

# The name of a file's object.
flat() { echo "$1${isa:+.$isa}" | tr / @; }

use_first_variant() { isa='' variant=${COURSE_VARIANTS:-} variant=${variant%%|*} variant=-DLS_ISA=${variant##*=}; }
use_first_variant

# Additional flags of the file.
flags_of() { case $1 in kernels/cpu/variant/*) echo "$variant" ;; esac; }

# each_other_variant COMMAND...: runs it with the lab's files of kernels/cpu/variant/, for each instruction set except
# the first.
each_other_variant() {
    files=$(cut_files "$folder" | grep '^kernels/cpu/variant/') || return 0
    others=${COURSE_VARIANTS#*|}
    while [ "$others" ]; do
        variant=${others%%|*} others=${others#*|}
        isa=${variant##*=}
        # shellcheck disable=SC2086
        "$@" $files || return 1
    done
    use_first_variant
}

# compile FOLDER INTO FLAGS FILE...: objects of the files in FOLDER, named by their paths
compile() {
    from=$1 into=$2 flags=$3
    shift 3
    mkdir -p "$into"
    for file; do
        # shellcheck disable=SC2046,SC2086
        $CC -I. $COURSE_CPPFLAGS $COURSE_CFLAGS $flags $(flags_of "$file") -iquote "$from" -c "$from/$file" -o "$into/$(flat "$file").o" || return 1
    done
}

# Undefined symbols of the files.
needed() { nm -u "$@" | awk 'NF == 2 && $1 ~ /^[Uwv]$/ { sub(/@.*/, "", $NF); print $NF }' | sort -u; }

# Global symbols that they define.
defined() { nm -g --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u; }

# The probe's own files: the lab's files that students do not write.
probe_files() { for file in "$folder"/*.c; do cut_files "$folder" | grep -qxF "$file" || echo "$file"; done; }

link() { # PROGRAM FLAGS OBJECT...
    linked=$1 flags=$2
    shift 2
    # shellcheck disable=SC2086
    $CC $flags "$@" "$COURSE_LIB" $COURSE_LIBS -o "$linked"
}

build_reference() {
    rm -rf "$out/theirs"
    # shellcheck disable=SC2046
    compile . "$out/theirs/cut" '' $(cut_files "$folder") && compile . "$out/theirs/own" '' $(probe_files) &&
        { needed "$out"/theirs/cut/*.o && defined "$out"/theirs/cut/*.o | sed 's/^/defines /'; } >"$out/allowed" &&
        link "$out/reference" "$probe_flags" "$out"/theirs/*/*.o
}

refuse() { # KEY ARGUMENT... of words.sh
    { words_in en "$@"; echo; } >"$out/refused"
    words "$@" >"$out/refused.words"
    exit 1
}

# take FILE: copies a file of the submission, if it is a regular file within the submission, and not too large.
take() {
    [ -e "$code/$1" ] || [ -L "$code/$1" ] || refuse file-missing "$1"
    is_own "$1" && mkdir -p "$taken/$(dirname "$1")" && head -c $most_bytes "$code/$1" >"$taken/$1" || refuse not-own "$1"
    tr -d '\000' <"$taken/$1" | cmp -s - "$taken/$1" || refuse not-own "$1"
    echo "$1" >>"$out/taken"
}

# The header NAME that FILE includes: the submission's own, if it differs from the tree's; the tree's; or one of the C
# library.
take_header() { # NAME FILE
    for header in "$(dirname "$2")/$1" "$1"; do
        grep -qxF "$header" "$out/taken" && return
        if ! [ "$code" -ef . ] && [ -e "$code/$header" ]; then
            is_own "$header" && cmp -s "$code/$header" "$header" && return
            [ "$(wc -l <"$out/taken")" -lt 100 ] || refuse too-many-headers "$2"
            take "$header"
            return
        fi
        [ -f "$header" ] && return
    done
    awk -v name="$1" '$1 == "header" { for (i = 2; i <= NF; i++) if ($i == name) found = 1 } END { exit !found }' labs/course/may_use ||
        refuse other-header "$2" "$1"
}

# Copies the lab's files and the submission's headers that they include, and checks their text.
take_code() {
    taken=$out/code
    rm -rf "$taken" && mkdir -p "$taken" && : >"$out/taken" || exit 1
    for file in $(cut_files "$folder"); do take "$file"; done
    while read -r file <&3; do
        bounded 20 awk -f labs/course/source.awk labs/course/may_use "$taken/$file" >"$out/source" || refuse no-compile "$file"
        closed=$(sed -n 's/^closed //p' "$out/source")
        [ -z "$closed" ] || refuse closed-text "$file" "${closed%% *}" "${closed#* }"
        for name in $(sed -n 's/^include //p' "$out/source" | sort -u); do take_header "$name" "$file"; done
    done 3<"$out/taken"
}

# clang, without this option, stops after 20 errors by default
limit_errors() { $CC --version | grep -q clang || echo -fmax-errors=20; }

# preprocess FILE: into OUT/mine. The compiler's messages name the student's file, not the copy.
preprocess() {
    text=$out/mine/$(flat "$1").i
    # shellcheck disable=SC2046,SC2086
    bounded 30 $CC -I. $COURSE_CPPFLAGS $COURSE_CFLAGS $(flags_of "$1") -Wno-error $most_errors -fmacro-prefix-map="$taken/=" -iquote "$taken" -E "$taken/$1" -o "$text.new" &&
        [ -z "$(find "$text.new" -size +16000)" ] && sed "/^# /s|\"$taken/|\"|" "$text.new" >"$text" && rm "$text.new"
}

# compile_text INTO FLAGS FILE...: objects from the output of preprocess. Warnings are not errors.
compile_text() {
    into=$1 flags=$2
    shift 2
    mkdir -p "$into"
    for file; do
        # shellcheck disable=SC2046,SC2086
        bounded 60 $CC $COURSE_CFLAGS $(flags_of "$file") -Wno-error $most_errors $flags -x cpp-output -c "$out/mine/$(flat "$file").i" -o "$into/$(flat "$file").o" || return 1
    done
}

compile_student() { # FILE...
    mkdir -p "$out/mine"
    most_errors=$(limit_errors)
    for file; do preprocess "$file" || return 1; done
    compile_text "$out/mine/cut" '' "$@"
}

# An object may have only the sections of ordinary code and data, with code only in .text, and only ordinary symbols.
look_at_object() {
    readelf -SW "$1" | sed -n 's/^ *\[ *[0-9]*\] \([^ ].*\)/\1/p' | awk '
        $1 == "NULL" { next }
        $1 !~ /^\.(text|data|bss|rodata|tdata|tbss)(\.|$)|^\.rela?\.|^\.(comment|eh_frame|symtab|strtab|shstrtab|llvm_addrsig|symtab_shndx)$|^\.(note|debug)[._]/ ||
        $7 ~ /X/ && $1 !~ /^\.text(\.|$)/ || $7 ~ /X/ && $7 ~ /W/ { print $1; exit }' >"$out/other"
    [ -s "$out/other" ] || nm "$1" | awk '{ kind = NF == 3 ? $2 : $1 } kind !~ /^[TtDdBbRrU]$/ { print $NF; exit }' >"$out/other"
    [ ! -s "$out/other" ] || refuse other-object "$(basename "$1" .o | tr @ /)" "$(cat "$out/other")"
    if objdump -d --no-show-raw-insn "$1" | grep -qE '\b(syscall|sysenter|int +\$0x80|svc)\b'; then
        refuse system-calls "$(basename "$1" .o | tr @ /)"
    fi
}

# A solution may call only the functions that the product's own code calls there, and those in may_use. It may define
# only the lab's own global names.
look_at() {
    for object; do look_at_object "$object"; done
    defined "$@" | sed 's/^/defines /' | grep -vxF -f "$out/allowed" | sed 's/^defines //' >"$out/other"
    # shellcheck disable=SC2046
    [ ! -s "$out/other" ] || refuse defines-others "$(echo $(head -5 "$out/other") | sed 's/ /, /g')"
    # a symbol that one of the student's files defines for another is allowed
    { cat "$out/allowed"; defined "$@"; } >"$out/known"
    needed "$@" | grep -vxF -f "$out/known" >"$out/other" || return 0
    nm -g --defined-only "$COURSE_LIB" 2>/dev/null | awk 'NF == 3 { print $3 }' >"$out/exported"
    extra=$(awk -v denied="$(conf_lines "$folder" deny | tr '\n' ' ')" -f labs/course/calls.awk labs/course/may_use "$out/exported" "$out/other" | head -5)
    # shellcheck disable=SC2086
    [ -z "$extra" ] || refuse calls-others "$(echo $extra | sed 's/ /, /g')"
}

# Limits a compiler to half a minute, 3 GB of memory and files of 100 MB. (Lower existing limits stay.)
limit_compilers() {
    trap : XFSZ # a compiler that exceeds the file size ends, but not this shell
    for most in '-t 30' '-v 3000000' '-f 200000'; do
        # shellcheck disable=SC2086
        ulimit $most 2>/dev/null
    done
}

# The probe's own objects, which no student's code changes.
build_own() {
    # shellcheck disable=SC2046
    stale=$(find "$out/own/made" "$folder"/*.[ch] "$COURSE_LIB" -newer "$out/own/made" 2>&1 | head -1)
    # shellcheck disable=SC2046
    [ -z "$stale" ] || { rm -rf "$out/own" && compile . "$out/own" '' $(probe_files) && touch "$out/own/made"; }
}

# The beginning of the compiler's messages.
show_messages() { head -c 4000 "$out/compiler" | sed "s|$taken/||g" >&2; }

build_student() {
    rm -rf "$out/mine" "$out/asan" "$out/refused" "$out/probe" "$out/probe_asan"
    mkdir -p "$out"
    limit_compilers
    take_code
    # shellcheck disable=SC2046
    compile_student $(cut_files "$folder") 2>"$out/compiler" || {
        show_messages
        refuse no-compile "$(head -c 100000 "$out/compiler" | grep -a -m1 -E 'error:|exceeded|[Kk]illed' | cut -b1-300 | sed "s|$taken/||g")"
    }
    show_messages
    look_at "$out"/mine/cut/*.o
    build_own && link "$out/probe" "$probe_flags" "$out"/mine/cut/*.o "$out"/own/*.o || refuse no-link
    [ "${PROBE_ONLY:-}" ] || build_programs || refuse no-link-programs
    [ -z "${NO_ASAN:-}" ] || return 0
    # shellcheck disable=SC2046
    compile_text "$out/asan/cut" "$asan" $(cut_files "$folder") 2>/dev/null &&
        link "$out/probe_asan" "$asan $probe_flags" "$out"/asan/cut/*.o "$out"/own/*.o || refuse no-link-asan
}

# link_program PROGRAM INTO OBJECT...: the program's main, and these objects before the library's.
link_program() {
    main=$(find "$COURSE_OBJ" -path "$COURSE_OBJ/tests" -prune -o -name "$1.o" -print | head -1) into=$2
    [ "$main" ] || { words not-built "$1" >&2; return 1; }
    shift 2
    link "$into" '' "$main" "$@"
}

build_programs() {
    each_other_variant compile_student 2>"$out/compiler" || { show_messages; return 1; }
    for name in $(conf_lines "$folder" program); do link_program "$name" "$out/$name" "$out"/mine/cut/*.o || return 1; done
    link_planted_beside "$out"/mine/cut/*.o
}

# link_planted_beside OBJECT...: planted programs whose bugs are in files that students do not write, linked with these
# objects of the student's files.
link_planted_beside() {
    conf_lines "$folder" planted-beside >"$out/beside.list"
    while read -r name program <&4; do
        [ -f "$out/$name.o" ] || (make_planted_beside) || return 1
        link_program "$program" "$out/$name" "$out/$name.o" "$@" || return 1
    done 4<"$out/beside.list"
}

build_planted() {
    conf_lines "$folder" planted >"$out/planted.list"
    while read -r name program bug <&3; do
        [ -z "$COURSE_REFERENCE" ] || { cp "$COURSE_REFERENCE/$lab/$name" "$out/$name" || return 1; continue; }
        rm -rf "$out/planted"
        for file in $(cut_files "$folder"); do
            mkdir -p "$out/planted/$(dirname "$file")" && cp "$file" "$out/planted/$file" || return 1
        done
        plant "$folder" "$bug" "$out/planted" || return 1
        # shellcheck disable=SC2046
        compile "$out/planted" "$out/planted/objects" '' $(cut_files "$folder") && each_other_variant compile "$out/planted" "$out/planted/objects" '' || return 1
        link_program "$program" "$out/$name" "$out"/planted/objects/*.o || return 1
    done 3<"$out/planted.list"
    conf_lines "$folder" planted-beside | cut -d' ' -f1 | sed "s|.*|$out/&.o|" | xargs -r rm -f
    link_planted_beside
}

# Each such program has one object, NAME.o, of all files that any of them changes, so that a handout does not show which
# file it changes.
make_planted_beside() {
    files=$(changed_by_planted "$folder")
    # shellcheck disable=SC2086
    [ "$COURSE_REFERENCE" ] || compile . "$out/unchanged" '' $files || return 1
    for name in $(cut -d' ' -f1 "$out/beside.list"); do
        if [ "$COURSE_REFERENCE" ]; then
            cp "$COURSE_REFERENCE/$lab/$name.o" "$out/" || return 1
        else
            plant_beside "$name" || return 1
        fi
    done
}

plant_beside() { # NAME: to OUT/NAME.o
    rm -rf "$out/planted"
    for file in $files; do mkdir -p "$out/planted/$(dirname "$file")" && cp "$file" "$out/planted/$file" || return 1; done
    plant "$folder" "$1" "$out/planted" || return 1
    objects=''
    for file in $files; do
        made=$out/unchanged
        cmp -s "$file" "$out/planted/$file" || { made=$out/planted/objects && compile "$out/planted" "$made" '' "$file" || return 1; }
        objects="$objects $made/$(flat "$file").o"
    done
    # shellcheck disable=SC2086
    ld -r -o "$out/$1.o" $objects
}

what=$1 lab=$2
folder=$(lab_folder "$lab") || exit 2
probe_flags=$(conf_lines "$folder" link | tr '\n' ' ')
case $what in
reference) out=$3 && mkdir -p "$out" && build_reference ;;
student) code=$3 out=$4 && build_student ;;
own) out=$3 && mkdir -p "$out" && build_own ;;
planted) out=$3 && mkdir -p "$out" && build_planted ;;
*) echo "labs/course/build.sh: reference, student, own or planted, not '$what'" >&2 && exit 2 ;;
esac
