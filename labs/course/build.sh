#!/bin/sh
# Builds a lab's probe, and its programs, with the student's files in place of the product's.
# usage: labs/course/build.sh reference LAB OUT          OUT/reference, and OUT/allowed: what its files call and define
#        labs/course/build.sh student LAB CODE OUT       OUT/probe, OUT/probe_asan and the lab's programs, from CODE's files
#        labs/course/build.sh own LAB OUT                OUT/own: the objects of the lab's probe
#        labs/course/build.sh planted LAB OUT            the lab's programs with planted bugs, for its sheet
# NO_ASAN=1: without OUT/probe_asan.
# student: exit status 1 and OUT/refused, a line, where the code does not compile or calls what it should
#          not; OUT/refused.words says the same in the student's language (LS_LANG).
# Settings come from labs/course/course.mk: CC, COURSE_CPPFLAGS, COURSE_CFLAGS, COURSE_LIB (the library), COURSE_LIBS, COURSE_OBJ.
set -u
. labs/course/conf.sh

asan='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'

# compile FOLDER INTO FLAGS FILE...: objects of the files in FOLDER, named by their paths
compile() {
    from=$1 into=$2 flags=$3
    shift 3
    mkdir -p "$into"
    for file; do
        # shellcheck disable=SC2086
        $CC -I. $COURSE_CPPFLAGS $COURSE_CFLAGS $flags -iquote "$from" -c "$from/$file" -o "$into/$(echo "$file" | tr / @).o" || return 1
    done
}

# Names that the files need from elsewhere.
needed() { nm -u "$@" | awk 'NF == 2 && $1 ~ /^[Uwv]$/ { sub(/@.*/, "", $NF); print $NF }' | sort -u; }

# Names that they define for others.
defined() { nm -g --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u; }

# The probe's own files: those of the lab that are not the student's.
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

refuse() { # what words.sh says
    { words_in en "$@"; echo; } >"$out/refused"
    words "$@" >"$out/refused.words"
    exit 1
}

# What a file is made of, by its true name, line by line: itself first, then all that it includes.
sources() {
    # shellcheck disable=SC2086
    { printf '%s\n' "$1"; $CC -I. $COURSE_CPPFLAGS $COURSE_CFLAGS -iquote "$code" -E -H "$1" 2>&1 >/dev/null | sed -n 's/^\.\.* //p'; } |
        tr '\n' '\0' | xargs -0 realpath
}

# The student's files are the student's: none is a link to another's, and none includes another's code. Headers may be anybody's.
look_at_files() {
    for file in $(cut_files "$folder"); do
        [ -f "$code/$file" ] || refuse file-missing "$file"
        other=$(sources "$code/$file" | WHOLE=$(realpath "$code")/ awk '
            index($0, ENVIRON["WHOLE"]) != 1 && (NR == 1 || !/\.(h|def)$/) { print; exit }')
        [ -z "$other" ] || refuse others-code "$file" "$other"
    done
}

# A solution calls what the product's own code calls there, memory, strings and numbers. It takes the place of no other function, and
# nothing of it runs before main.
look_at() {
    for object; do
        if readelf -SsW "$object" | grep -qE ' (\.(preinit|init|ctors)|IFUNC )'; then
            refuse before-main "$(basename "$object" .o | tr @ /)"
        fi
        if objdump -d --no-show-raw-insn "$object" | grep -qE '\b(syscall|sysenter|int +\$0x80|svc)\b'; then
            refuse system-calls "$(basename "$object" .o | tr @ /)"
        fi
    done
    extra=$(needed "$@" | grep -vxF -f "$out/allowed" |
        grep -vxE '(mem|str)[a-z]+|__(mem|str)[a-z]+_chk|malloc|calloc|realloc|free|(f|l|ll)?abs|[a-z0-9]*(sqrt|floor|ceil|round|fma|fmin|fmax|log|log2|exp|pow)[fl]?|(f|s|sn)?printf|__[a-z]*printf_chk|puts|putchar|fputs|fputc|fwrite|stderr|stdout|__stack_chk_fail|__assert_fail|ls_todo_at|_GLOBAL_OFFSET_TABLE_|ls_fail|ls_report_error|ls_warn|ls_note')
    # what one of the student's files defines for another is no call to elsewhere
    extra=$(for name in $extra; do nm --defined-only "$@" | grep -qE " [A-Za-z] $name\$" || echo "$name"; done)
    # shellcheck disable=SC2086
    [ -z "$extra" ] || refuse calls-others "$(echo $extra | sed 's/ /, /g')"
    nm -g "$COURSE_LIB" | awk 'NF > 1 { print $NF }' >"$out/taken"
    extra=$(defined "$@" | sed 's/^/defines /' | grep -vxF -f "$out/allowed" | sed 's/^defines //' | grep -xF -f "$out/taken")
    # shellcheck disable=SC2086
    [ -z "$extra" ] || refuse defines-others "$(echo $extra | sed 's/ /, /g')"
}

# No text costs a compiler more than a minute, 3 GB of memory or files of 1 GB. (Lower limits that are there stay.)
limit_compilers() {
    for most in '-t 60' '-v 3000000' '-f 2000000'; do
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

build_student() {
    rm -rf "$out/mine" "$out/asan" "$out/refused" "$out/probe" "$out/probe_asan"
    mkdir -p "$out"
    limit_compilers
    look_at_files
    # shellcheck disable=SC2046
    compile "$code" "$out/mine/cut" '' $(cut_files "$folder") 2>"$out/compiler" ||
        { cat "$out/compiler" >&2; refuse no-compile "$(grep -m1 'error:' "$out/compiler")"; }
    look_at "$out"/mine/cut/*.o
    build_own && link "$out/probe" "$probe_flags" "$out"/mine/cut/*.o "$out"/own/*.o || refuse no-link
    [ "${PROBE_ONLY:-}" ] || build_programs || refuse no-link-programs
    [ -z "${NO_ASAN:-}" ] || return 0
    # shellcheck disable=SC2046
    compile "$code" "$out/asan/cut" "$asan" $(cut_files "$folder") &&
        link "$out/probe_asan" "$asan $probe_flags" "$out"/asan/cut/*.o "$out"/own/*.o || refuse no-link-asan
}

# link_program PROGRAM INTO OBJECT...: the program's main, and these objects before the library's.
link_program() {
    main=$(find "$COURSE_OBJ" -name "$1.o" | head -1) into=$2
    [ "$main" ] || { words not-built "$1" >&2; return 1; }
    shift 2
    link "$into" '' "$main" "$@"
}

build_programs() {
    for name in $(conf_lines "$folder" program); do link_program "$name" "$out/$name" "$out"/mine/cut/*.o || return 1; done
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
        compile "$out/planted" "$out/planted/objects" '' $(cut_files "$folder") || return 1
        link_program "$program" "$out/$name" "$out"/planted/objects/*.o || return 1
    done 3<"$out/planted.list"
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
