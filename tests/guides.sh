#!/bin/sh
# Applies the patch of each page of docs/extend to a copy of the tree, and runs the page's commands there: the lines of
# its blocks marked "sh guide", each of which must succeed. A page whose first line of commands applies no patch fails.
# The copy keeps the times of programs and objects, so that make builds only the files that the patch changes.
# usage: tests/guides.sh [--apply] [PAGE...]    PAGE: a name in docs/extend without .md; default: all pages
#        --apply: only applies the patches, which takes a second
# LS_GUIDES_MAKE: arguments for make in the copy (HAVE_nvcc=)
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/guides.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# The working files that git lists, and the build.
copy_tree() {
    rm -rf "$work/tree"
    mkdir "$work/tree"
    git ls-files -co --exclude-standard | while read -r file; do [ ! -e "$file" ] || echo "$file"; done |
        tar -cf - -T - | tar -xf - -C "$work/tree"
    [ ! "$apply" ] || return 0
    for part in build/*; do
        case $part in
        */results | */clang | */asan | */tsan | */tests | */gpu-bundle*) ;;
        *) cp -a --parents "$part" "$work/tree" ;;
        esac
    done
    # the objects of the tests suffice: the programs that a page runs are linked again
    [ ! -d build/tests/cuda_on_cpu ] || cp -a --parents build/tests/cuda_on_cpu "$work/tree"
}

# The lines of the page's blocks marked "sh guide".
commands_of() {
    awk '/^ *```/ { inside = !inside && $0 ~ /^ *```sh guide$/; next } inside' "$1" |
        if [ "$apply" ]; then grep '^git apply'; else cat; fi
}

pages() { ls docs/extend/*.md | sed 's|.*/||; s|\.md$||'; }

check_page() {
    page=docs/extend/$1.md
    [ -f "$page" ] || { echo "guides: there is no page '$1'; there are: $(pages | paste -sd' ' -)" >&2; return 2; }
    commands_of "$page" >"$work/commands"
    if ! head -n 1 "$work/commands" | grep -q '^git apply docs/extend/'; then
        echo "$page: its first command applies no patch" >&2
        return 1
    fi
    copy_tree
    while read -r command <&3; do
        case $command in
        make | 'make '*) command="$command ${LS_GUIDES_MAKE:-}" ;;
        esac
        if ! (cd "$work/tree" && GIT_CEILING_DIRECTORIES=$work timeout 900 sh -c "$command") >"$work/output" 2>&1 3<&-; then
            echo "$page: this command fails: $command" >&2
            tail -n 30 "$work/output" >&2
            return 1
        fi
    done 3<"$work/commands"
    echo "guides: $1: $(wc -l <"$work/commands") commands"
}

apply=
if [ "${1:-}" = --apply ]; then apply=1 && shift; fi
[ $# -gt 0 ] || set -- $(pages)
for name in "$@"; do check_page "$name"; done
