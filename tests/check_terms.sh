#!/bin/sh
# Checks that messages, headers and pages use the words of docs/glossary.md: none of them has a word of its columns "not used".
# It reads
#   pages     *.md, without code (blocks and spans), links' targets and HTML comments; not the glossary, nor CHANGELOG.md (history)
#   headers   comments of *.h, without code spans
#   messages  string literals of several words in *.c, *.h and *.cu, tests aside
#   labs      the lines of *.conf that students read
# Chinese pages (*.zh.*) have their own terms. A word is also found with a plural s, in capitals, and across lines.
# usage: tests/check_terms.sh              checks
#        tests/check_terms.sh --self-test  plants each kind of violation in a small tree and fails unless all are found, and
#                                          nothing else
set -u
export LC_ALL=C
cd "${LS_ROOT:-$(dirname "$0")/..}" || exit 1

search='
    FNR == 1 { fence = open = 0; tail = ""; kind = kind_of(FILENAME); files += kind != "glossary" }
    function kind_of(name) {
        if (name ~ /(^|\/)glossary\.words$/) return "glossary"
        if (name ~ /\.md$/) return "page"
        if (name ~ /\.h$/) return "header"
        return name ~ /\.conf$/ ? "lab" : "messages"
    }
    # "word<tab>what to write", from list_words
    kind == "glossary" {
        split($0, pair, "\t")
        write[pair[1]] = pair[2]; words++
        gsub(/[.*+?()\[\]|^$\\]/, "\\\\&", pair[1])
        pattern = pattern (words > 1 ? "|" : "") pair[1]
        next
    }
    # Finds words in `text`, the next piece of a running text; a word at the end of a line may continue in the next.
    function look_at(text, rest, at, word, begin) {
        text = tolower(text); gsub(/[ \t]+/, " ", text); sub(/^ /, "", text)
        rest = " " tail " " text " "; begin = length(tail) + 2
        while (match(rest, "[^a-z0-9_](" pattern ")s?[^a-z0-9_]")) {
            word = substr(rest, RSTART + 1, RLENGTH - 2); at = RSTART + RLENGTH - 2
            if (at >= begin) {
                if (!(word in write)) sub(/s$/, "", word)
                printf "%s:%d: \"%s\" is not used here; write: %s (docs/glossary.md)\n", FILENAME, FNR, word, write[word]
                bad++
            }
            rest = substr(rest, RSTART + RLENGTH - 1); begin -= RSTART + RLENGTH - 2
        }
        tail = substr(text, length(text) > 40 ? length(text) - 39 : 1)
        looks++
    }
    kind == "page" {
        if (/^[ ]*```/) { fence = !fence; tail = ""; next }
        if (fence || /^ *$/) { tail = ""; next }
        gsub(/`[^`]*`/, "`"); gsub(/<!--[^>]*-->/, " "); gsub(/\]\([^)]*\)/, "] ")
        look_at($0); next
    }
    kind == "lab" { tail = ""; gsub(/`[^`]*`/, "`"); look_at($0); next }
    # C: comments of headers, and string literals outside of comments
    {
        text = $0; comment = ""; code = ""
        while (text != "") {
            if (open) {
                at = index(text, "*/")
                comment = comment (at ? substr(text, 1, at - 1) : text)
                if (!at) break
                text = substr(text, at + 2); open = 0; comment = comment " . "
            } else {
                at = index(text, "/*")
                code = code (at ? substr(text, 1, at - 1) : text) " "
                if (!at) break
                text = substr(text, at + 2); open = 1; if (comment == "") tail = ""
            }
        }
        if (kind == "header" && comment != "") { sub(/^ *\* ?/, "", comment); gsub(/`[^`]*`/, "`", comment); look_at(comment) }
        if (FILENAME ~ /^tests\//) next
        saved = tail
        while (match(code, /"([^"\\]|\\.)*"/)) {
            tail = ""
            literal = substr(code, RSTART + 1, RLENGTH - 2); code = substr(code, RSTART + RLENGTH)
            gsub(/\\[nt]/, " ", literal)
            if (literal ~ / .* /) look_at(literal)
        }
        tail = saved
    }
    END {
        if (!words || !looks) { print "terms: nothing was checked"; exit 1 }
        if (bad) { printf "terms: %d places have words that are not used\n", bad; exit 1 }
        printf "terms: none of %d words that are not used is in %d files\n", words, files
    }'

# The words of every column "not used" of the glossary, each with the first column of its row.
list_words() {
    awk -F '|' '/^\|/ {
            if (/^\|[- |]*$/) next
            if (!in_table) { in_table = 1; column = 0; for (i = 2; i < NF; i++) if ($i ~ /^ *not used *$/) column = i; next }
            if (!column) next
            name = $2; gsub(/^ +| +$/, "", name)
            count = split($column, word, /,/)
            for (i = 1; i <= count; i++) { gsub(/^ +| +$/, "", word[i]); if (word[i] != "") print tolower(word[i]) "\t" name }
            next
        }
        { in_table = 0 }' docs/glossary.md
}

list_files() {
    git ls-files -co --exclude-standard -- '*.md' '*.h' '*.c' '*.cu' '*.conf' |
        grep -vE '^CHANGELOG\.md$|^docs/glossary\.md$|\.zh\.[a-z]+$|^tests/.*\.(c|cu)$' | while read -r file; do [ -f "$file" ] && echo "$file"; done
}

check() {
    lists=$(mktemp -d) || exit 1
    list_words >"$lists/glossary.words"
    list_files | xargs awk "$search" "$lists/glossary.words"
    status=$?
    rm -r "$lists"
    return "$status"
}

self_test() {
    copy=$(mktemp -d) || exit 1
    trap 'rm -rf "$copy"' EXIT
    mkdir -p "$copy/docs" "$copy/tests"
    cp tests/check_terms.sh "$copy/tests/"
    printf '# G\n\n| term | what it means | not used | where |\n|---|---|---|---|\n| a | b | old word, x-y | c |\n| d | e | | f |\n\nText.\n\n| write | not used |\n|---|---|\n| plain | wordy |\n' >"$copy/docs/glossary.md"
    printf 'Gold words, `old word`, [x](old_word.md), xx-y, wordyness.\n\n```text\nold word\n```\n' >"$copy/page.md"
    printf 'old word\n' >"$copy/page.zh.md"
    printf '/* An `old word`. */\nint old_word; /* x */ const char *s = "wordy";\n' >"$copy/a.h"
    printf '/* old word */\nconst char *s = "fine words here", *option = "wordy";\n' >"$copy/b.c"
    printf 'check x 1 fine\n' >"$copy/lab.conf"
    git -C "$copy" init -q .
    try() { LS_ROOT=$copy "$copy/tests/check_terms.sh" >"$copy/said" 2>&1; }
    try || { echo 'self-test: the tree itself is not clean'; cat "$copy/said"; exit 1; }
    planted=0 missed=0
    plant() { # file, what is added to it, the word
        planted=$((planted + 1))
        cp "$copy/$1" "$copy/kept"
        printf '%b\n' "$2" >>"$copy/$1"
        if try || ! grep -qF "\"$3\" is not used here" "$copy/said"; then echo "self-test: not found: $1: $2"; cat "$copy/said"; missed=1; fi
        cp "$copy/kept" "$copy/$1"
    }
    plant page.md 'An old word.' 'old word'
    plant page.md 'Old\nwords.' 'old word'
    plant page.md '| (X-Y) |' 'x-y'
    plant page.md 'Wordy' 'wordy'
    plant a.h '/* As\n * an old\n * word. */' 'old word'
    plant a.h 'int i; /* x-y */' 'x-y'
    plant b.c 'const char *t = "an old word of %%s\\n";' 'old word'
    plant b.c 'int j = 1; /* x */ const char *u = "so it is wordy";' 'wordy'
    plant lab.conf 'hint x a wordy line' 'wordy'
    [ "$missed" -eq 0 ] && echo "self-test: all $planted planted words were found"
    return "$missed"
}

case ${1:-} in
--self-test) self_test ;;
*) check ;;
esac
