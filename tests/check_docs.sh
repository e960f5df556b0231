#!/bin/sh
# Checks that everything that pages and comments name exists:
#   1. relative links of *.md lead to files, and #anchors to headings; README.md links every page of docs/;
#   2. names of this tree's files, in pages and in comments, are names of files; so are anchors after them
#      (docs/x.md#y);
#   3. `make TARGET` names a target;
#   4. `build/PROGRAM --option` in a page names a program of the Makefile and an option of its --help (of those that are built);
#   5. a line "PROGRAM: error: ..." of a block "text" has the words of messages in the sources, numbers and names aside;
#   6. `test_NAME` in a page is a test, or a test program;
#   7. README.md has at most 150 lines of at most 100 bytes.
# usage: tests/check_docs.sh                    checks
#        tests/check_docs.sh --run [PAGE...]    runs the commands of the pages (all): lines of blocks "sh run"
#                                               "(exit status N)" in a comment: expects N, not 0
#                                               Labs ask for no predictions
#                                               The last command before a block "text said" must have printed its
#                                               lines, numbers aside
#        tests/check_docs.sh --self-test        plants violations in a copy and fails unless each is found
# BUILD: the folder with the programs (build). DOCS_DEADLINE_S: seconds for a command, 120
set -u
export LC_ALL=C
cd "${LS_ROOT:-$(dirname "$0")/..}" || exit 1
build=${BUILD:-build}

# Every file that git lists and that exists.
list_files() {
    git ls-files -co --exclude-standard | while read -r file; do [ -f "$file" ] && echo "$file"; done
}

# The files that the patches of docs/extend would add, which their pages name.
list_patched() { sed -n 's|^+++ b/||p' docs/extend/*.patch 2>/dev/null; }

# "target NAME" and "main NAME" for each target and program of the Makefile; "program NAME" for each program that is
# built, and "option PROGRAM --NAME" for its options.
list_names() {
    sed -n '/^MAINS/,/[^\\]$/p' Makefile | grep -oE '[a-z_]+\.c' | sed 's/\.c$//; s/^/main /'
    awk '/^\.PHONY:/ { for (i = 2; i <= NF; i++) print "target", $i }
        /^[a-z][a-z -]*:/ { sub(/:.*/, ""); for (i = 1; i <= NF; i++) print "target", $i }' Makefile labs/course/course.mk library/install.mk
    for program in "$build"/*; do
        [ -f "$program" ] && [ -x "$program" ] || continue
        name=${program##*/}
        echo "program $name"
        "$program" --help 2>/dev/null | grep -oE -- '--(\[no-\])?[a-z][a-z0-9-]*' |
            sed -n "s/^--/option $name --/; /\[no-\]/{ h; s/\[no-\]/no-/p; g; s/\[no-\]//; }; p"
    done
}

# Reads the lists, then every page and source, and prints a line for each name that does not exist.
search='
    # --- the lists: "file PATH", "target NAME", "program NAME", "option PROGRAM --NAME" ---
    FNR == 1 { kind = kind_of(FILENAME); fence = ""; open = 0; if (kind == "page") pages++; else if (kind != "list") sources++ }
    kind == "list" {
        if ($1 == "file") add_file($2); else if ($1 == "target") targets[$2] = 1; else if ($1 == "main") mains[$2] = 1
        else if ($1 == "program") { programs[$2] = 1; program_count++ } else options[$2 " " $3] = 1
        next
    }

    function kind_of(name) {
        if (name ~ /\.lists$/) return "list"
        if (name ~ /\.md$/) return "page"
        if (name ~ /\.(c|h|cu|cuh|cpp|def)$/) return "c"
        return "hash"
    }
    function add_file(path, part, parts, i) {
        files[path] = 1
        parts = split(path, part, "/")
        for (i = parts; i >= 1; i--) { tail = i == parts ? part[i] : part[i] "/" tail; tails[tail] = 1 }
        path = ""
        for (i = 1; i < parts; i++) { path = path part[i]; folders[path] = 1; path = path "/" }
    }
    function wrong(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; bad++ }

    # --- links and anchors: checked at the end, when all headings are known --
    function slug(text) {
        text = tolower(text); gsub(/[^a-z0-9 _-]/, "", text); gsub(/ /, "-", text)
        return text
    }
    function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
    function resolve(base, target) {
        if (base != "") target = base "/" target
        while (sub(/[^\/]+\/\.\.\//, "", target)) {}
        gsub(/(^|\/)\.\//, "", target); sub(/\/$/, "", target)
        return target
    }
    function note_link(target, base, path, anchor) {
        if (target ~ /^[a-z]+:/) return
        anchor = ""
        if (match(target, /#/)) { anchor = substr(target, RSTART + 1); target = substr(target, 1, RSTART - 1) }
        path = target == "" ? FILENAME : resolve(base, target)
        links++
        from[links] = FILENAME ":" FNR; to[links] = path; at[links] = anchor
        if (FILENAME == "README.md") listed[path] = 1
    }

    # --- names of files ---
    # "*", {a,b}, NAME and MODEL stand for any text.
    function exists(path, known, pattern, file) {
        if (path in known || path in folders) return 1
        pattern = path
        gsub(/\./, "\\.", pattern); gsub(/\*/, "[^/]*", pattern)
        gsub(/NAME|MODEL/, "[^/]*", pattern)
        gsub(/\{/, "(", pattern); gsub(/,/, "|", pattern); gsub(/\}/, ")", pattern)
        for (file in known) if (file ~ "^" pattern "(\\.[a-z]+)?$" || file ~ "^" pattern "/") return 1
        return 0
    }
    function look_for_names(text, token, before, rest) {
        gsub(/https?:\/\/[^ )>"]*/, "", text); gsub(/github\.com[^ ]*/, "", text)
        while (match(text, /[A-Za-z0-9_.*{][A-Za-z0-9_.,*{}\/-]*/)) {
            token = substr(text, RSTART, RLENGTH)
            before = RSTART > 1 ? substr(text, RSTART - 1, 1) : " "
            rest = substr(text, RSTART + RLENGTH)
            text = rest
            if (before ~ /[\/$<>~-]/) continue
            sub(/[.,\/-]+$/, "", token)
            if (token ~ /^(common|kernels|dp_threads|ddp_procs|labs|plots|tests|docs|data|\.ci)\/./) {
                if (!exists(token, files)) wrong("there is no " token)
            } else if (token ~ /^[A-Za-z0-9_\/-]+\.(md|c|h|cu|cuh|cpp|def|gp|sh|py)$/ && !is_others(token)) {
                if (!exists(token, tails)) wrong("no file here is called " token)
            } else continue
            names++
            if (kind != "page" && token ~ /\.md$/ && match(rest, /^#[a-z0-9-]+/)) note_link(token substr(rest, 1, RLENGTH), "")
        }
    }
    # Other projects and their files, and files that programs write.
    function is_others(token) {
        if (token == "llm.c" || token ~ /^(torch|aten|tools|build)\// || token ~ /(^|\/)(tables|mnist_ddp|answers)\.(md|py)$/) return 1
        if (FILENAME == "docs/pytorch.md" && token !~ /\.md$/) return 1
        return token in system_headers
    }

    # --- messages: runs of three words, which string literals of the sources must have --------------------------------
    # ~ is a number, a name or a conversion of printf.
    function words_of(text) { gsub(/%[-+ 0#]*[0-9.*]*(l|ll|z|h|j)?[a-zA-Z]/, "~", text); gsub(/[0-9]+([.][0-9]+)?/, "~", text); return text }
    function keep_literal(word, words, i) {
        words = split(words_of(literal), word, / +/)
        for (i = 1; i <= words - 2; i++) runs[word[i] " " word[i + 1] " " word[i + 2]] = 1
        literal = ""
    }
    function look_for_literals(text) { # neighbours, also in two lines, are one
        while (match(text, /"([^"\\]|\\.)*"/)) {
            if (substr(text, 1, RSTART - 1) ~ /[^ \t]/) keep_literal()
            literal = literal substr(text, RSTART + 1, RLENGTH - 2)
            text = substr(text, RSTART + RLENGTH)
        }
        if (text ~ /[^ \t]/) keep_literal()
    }
    function look_at_message(where, text, word, words, known, i, count) {
        sub(/^[a-z_]+(\[rank [0-9]+\])?: (error|warning): /, "", text)
        words = split(text, word, / +/)
        for (i = 1; i <= words; i++) { sub(/[^ (]*\/[^ ,;:)]*/, "~", word[i]); word[i] = words_of(word[i]) }
        for (i = 1; i <= words - 2; i++) if (word[i] " " word[i + 1] " " word[i + 2] in runs) known[i] = known[i + 1] = known[i + 2] = 1
        for (i in known) count++
        messages++
        if (5 * count < 2 * words) { printf "%s: no program says \"%s\"\n", where, text; bad++ }
    }

    # --- commands ---
    function look_at_command(text, word, words, i, program, name) {
        gsub(/\047[^\047]*\047/, "quoted", text); gsub(/"[^"]*"/, "quoted", text); sub(/ *#.*/, "", text); sub(/^[ $]+/, "", text)
        words = split(text, word, / +/)
        if (word[1] == "make") {
            for (i = 2; i <= words && word[i] ~ /^([a-z-]+|[A-Za-z_]+=.*|-.*)$/; i++) {
                if (word[i] ~ /[=]/ || word[i] ~ /^-/) continue
                commands++
                if (!(word[i] in targets)) wrong("make has no target " word[i])
            }
            return
        }
        program = ""
        for (i = 1; i <= words && word[i] !~ /^[|;&>]/; i++) {
            name = word[i]; sub(/^build\//, "", name)
            if (name in programs) { program = name; continue }
            if (words > i && word[i] ~ /^build\/[a-z_]+$/ && (i == 1 || word[i - 1] ~ /=/) && !(name in mains)) {
                wrong("there is no program " name)
            }
            if (program == "" || word[i] !~ /^--[a-z]/) continue
            name = word[i]; sub(/=.*/, "", name); sub(/[^a-z0-9-]+$/, "", name)
            commands++
            if (!(program " " name in options) && name != "--help") wrong(program " has no option " name)
        }
    }

    # --- pages ---
    kind == "page" {
        line = $0
        if (FILENAME == "README.md" && length(line) > 100) wrong("more than 100 bytes in a line")
        if (FILENAME == "README.md" && FNR == 151) wrong("more than 150 lines")
        if (line ~ /^```/) { fence = fence == "" ? line : ""; next }
        look_for_names(line)
        if (fence ~ /^```text/) { # what a program printed
            if (line ~ /^[a-z_]+(\[rank [0-9]+\])?: (error|warning): /) { quoted[++quoted_count] = line; quoted_at[quoted_count] = FILENAME ":" FNR }
            next
        }
        if (fence != "" || line ~ /^    /) { look_at_command(line); next }
        if (line ~ /^#+ /) { heading = line; sub(/^#+ /, "", heading); anchors[FILENAME "#" slug(heading)] = 1 }
        rest = line
        while (match(rest, /\]\([^)]*\)/)) {
            target = substr(rest, RSTART + 2, RLENGTH - 3)
            rest = substr(rest, RSTART + RLENGTH)
            note_link(target, folder_of(FILENAME))
        }
        spans = split(line, span, "`")
        for (s = 2; s <= spans; s += 2) {
            look_at_command(span[s])
            if (span[s] ~ /^test_[a-z0-9_]+$/) { tests_named[span[s]] = FILENAME ":" FNR }
        }
    }

    # --- comments ---
    function look_at_comment(text, span, spans, s) {
        look_for_names(text)
        spans = split(text, span, "`")
        for (s = 2; s <= spans; s += 2) if (span[s] ~ /^make /) look_at_command(span[s])
    }
    kind == "c" {
        if (FILENAME !~ /^tests\// && FILENAME !~ /\.def$/) look_for_literals($0)
        if (FILENAME ~ /^tests\// && /^(TEST|static void )/ && match($0, /test_[a-z0-9_]+/)) tests[substr($0, RSTART, RLENGTH)] = 1
        rest = $0
        while (rest != "") {
            if (open) {
                close_at = index(rest, "*/")
                look_at_comment(close_at ? substr(rest, 1, close_at - 1) : rest)
                if (!close_at) break
                rest = substr(rest, close_at + 2); open = 0
            } else {
                if (match(rest, /\/\//) && (!index(rest, "/*") || RSTART < index(rest, "/*"))) break
                if (!(begin = index(rest, "/*"))) break
                rest = substr(rest, begin + 2); open = 1
            }
        }
    }
    kind == "hash" && match($0, /(^|[ \t])#/) { look_at_comment(substr($0, RSTART + RLENGTH)) }

    BEGIN {
        split("nccl.h hwloc.h cuda.h cJSON.h zlib.h dnnl.h cmocka.h string.h math.h stdio.h limits.h signal.h cuda_runtime.h nvrtc.h", name)
        for (i in name) system_headers[name[i]] = 1
    }
    END {
        keep_literal()
        for (i in tests_named) if (!(i in tests) && !(i ".c" in tails)) { printf "%s: there is no test %s\n", tests_named[i], i; bad++ }
        for (i = 1; i <= quoted_count; i++) look_at_message(quoted_at[i], quoted[i])
        for (i = 1; i <= links; i++) {
            if (!(to[i] in files) && !(to[i] in folders)) { printf "%s: there is no %s\n", from[i], to[i]; bad++ }
            else if (at[i] != "" && !(to[i] "#" at[i] in anchors)) { printf "%s: %s has no heading #%s\n", from[i], to[i], at[i]; bad++ }
        }
        for (file in files) if (file ~ /^docs\/.*\.md$/ && !(file in listed)) { printf "README.md: does not link %s\n", file; bad++ }
        if (!pages || !sources || !links || !names || !commands || !messages) { print "docs: nothing was checked"; bad++ }
        if (bad) exit 1
        printf "docs: %d links, %d names, %d commands and %d messages in %d pages and %d sources lead somewhere; ", links, names, commands, messages, pages, sources
        print program_count ? "options of " program_count " programs" : "NO OPTIONS were checked: no program is built"
    }'

check() {
    lists=$(mktemp -d) || exit 1
    { { list_files; list_patched; } | sed 's/^/file /'; list_names; } >"$lists/names.lists"
    list_files | grep -E '\.(md|c|h|cu|cuh|cpp|def|sh|gp|py|mk)$|^Makefile$|^\.ci/run$' | grep -v '^tests/check_docs.sh$' |
        xargs awk "$search" "$lists/names.lists"
    status=$?
    rm -r "$lists"
    return "$status"
}

# --- the commands themselves -------------------------------------------------------------------------------------------

# PAGE:LINE, a tab, and the command, for each line of a block "sh run"; "=" and the line for a block "text said"
list_commands() {
    awk '/^```/ { inside = !inside; run = inside && $0 ~ /^```sh run/; said = inside && $0 ~ /^```text said/; next }
        run && NF && !/^#/ { printf "%s:%d\t%s\n", FILENAME, FNR, $0 }
        said && NF { printf "%s:%d\t=%s\n", FILENAME, FNR, $0 }' "$@"
}

run_pages() {
    [ $# -gt 0 ] || set -- README.md docs/*.md
    for page in "$@"; do [ -f "$page" ] || { echo "there is no page '$page'; RUN=1 runs the commands of README.md and docs/*.md" >&2; return 2; }; done
    export PREDICT=skip
    said=$(mktemp) || exit 1
    list_commands "$@" >"$said.list"
    failed=0 count=0 quoted=0
    numbers='s/[0-9][0-9]*\(\.[0-9][0-9]*\)*/~/g'
    while IFS='	' read -r where line <&3; do
        case $line in
        =*)
            quoted=$((quoted + 1))
            sed "$numbers" "$said" | grep -qxF -e "$(printf '%s\n' "${line#=}" | sed "s|build/|$build/|g; $numbers")" && continue
            echo "$where: the command does not say: ${line#=}; it said:"
            tail -n 5 "$said"
            failed=$((failed + 1))
            continue
            ;;
        esac
        expected=$(printf '%s\n' "$line" | sed -n 's/.*#.*(exit status \([0-9]*\)).*/\1/p')
        begin=$(date +%s%N)
        timeout -k 5 "${DOCS_DEADLINE_S:-120}" sh -c "$(printf '%s\n' "$line" | sed "s|build/|$build/|g")" >"$said" 2>&1 </dev/null
        status=$?
        printf '%6.1f s  %s: %s\n' "$(echo "$begin $(date +%s%N)" | awk '{ print ($2 - $1) / 1e9 }')" "$where" "$(printf '%s\n' "$line" | sed 's/ *#.*//')"
        count=$((count + 1))
        [ "$status" -eq "${expected:-0}" ] && continue
        echo "$where: exit status $status, and ${expected:-0} was expected; it said:"
        tail -n 5 "$said"
        failed=$((failed + 1))
    done 3<"$said.list"
    rm "$said" "$said.list"
    [ "$count" -gt 0 ] || { echo 'no command is marked to be run'; return 1; }
    echo "commands: $count run, $quoted lines of what they say, $failed failed"
    [ "$failed" -eq 0 ]
}

# --- self-test -----------------------------------------------------------------------------------------------------------

self_test() {
    copy=$(mktemp -d) || exit 1
    trap 'rm -rf "$copy"' EXIT
    list_files | xargs cp --parents -t "$copy"
    (cd "$copy" && git init -q . && mkdir -p build && printf '#!/bin/sh\necho "  --right=N --[no-]way"\n' >build/stub && chmod +x build/stub) ||
        exit 1
    try() { LS_ROOT=$copy BUILD=build "$copy/tests/check_docs.sh" "$@" >"$copy/build/said" 2>&1; }
    try || { echo 'self-test: the copy itself is not clean'; cat "$copy/build/said"; exit 1; }
    planted=0 missed=0
    plant() { # file, what is added to it, what must be said
        planted=$((planted + 1))
        cp "$copy/$1" "$copy/build/kept" 2>/dev/null || : >"$copy/build/kept"
        printf '%b\n' "$2" >>"$copy/$1"
        if try; then echo "self-test: not found: $1: $2"; missed=1
        elif ! grep -qF "$3" "$copy/build/said"; then echo "self-test: $1: $2: does not say \"$3\" but:"; cat "$copy/build/said"; missed=1; fi
        if [ -s "$copy/build/kept" ]; then cp "$copy/build/kept" "$copy/$1"; else rm "$copy/$1"; fi
    }
    page=docs/bench.md
    plant $page '[x](nowhere.md)' 'there is no docs/nowhere.md'
    plant $page '[x](../docs/replay.md#nowhere)' 'has no heading #nowhere'
    plant $page '[x](#nowhere)' 'has no heading #nowhere'
    plant $page 'See `common/nowhere.c`.' 'there is no common/nowhere.c'
    plant $page 'See `nowhere.gp`.' 'no file here is called nowhere.gp'
    plant $page 'See `tests/golden/*.nowhere`.' 'there is no tests/golden/*.nowhere'
    plant $page 'Run `make nowhere`.' 'make has no target nowhere'
    plant $page '```sh\nmake test nowhere A=b\n```' 'make has no target nowhere'
    plant $page '```sh\nbuild/stub --right 1 --no-way --wrong 2\n```' 'stub has no option --wrong'
    plant $page 'Run `build/stub --wrong`.' 'stub has no option --wrong'
    plant $page 'Run `build/nowhere --right`.' 'there is no program nowhere'
    plant $page '```text\ndp_train: error: nothing of this is in any source of this tree\n```' 'no program says "nothing of'
    plant $page 'Test: `test_nowhere_at_all`.' 'there is no test test_nowhere_at_all'
    plant docs/planted.md '# Planted' 'does not link docs/planted.md'
    plant common/base/clock.c '/* as\n * ls_nowhere (nowhere.h) does */' 'no file here is called nowhere.h'
    plant common/base/clock.c '/* docs/pytorch.md#nowhere */' 'has no heading #nowhere'
    plant common/base/clock.c 'int x; /* like `make nowhere` */' 'make has no target nowhere'
    plant kernels/ops.def '/* see docs/nowhere.md */' 'there is no docs/nowhere.md'
    plant plots/style.gp '# see DESIGN.md' 'no file here is called DESIGN.md'
    plant Makefile '# see labs/nowhere/README.md' 'there is no labs/nowhere/README.md'
    plant README.md "$(printf '%0101d' 0)" 'more than 100 bytes'
    plant README.md "$(printf '%0150d' 0 | sed 's/0/\\n/g')" 'more than 150 lines'
    printf '```sh run\ntrue\nfalse # (exit status 1)\n```\n' >"$copy/right.md"
    printf '```sh run\ntrue\nfalse\n```\n' >"$copy/wrong.md"
    printf '```sh run\necho the cup number 7 is full\n```\n\n```text said\nthe cup number 12 is full\n```\n' >>"$copy/right.md"
    printf '```sh run\necho the cup is full\n```\n\n```text said\nthe cup is empty\n```\n' >"$copy/unsaid.md"
    try --run right.md || { echo 'self-test: commands that succeed count as failed'; missed=1; }
    if try --run wrong.md; then echo 'self-test: a command that fails was not found'; missed=1; fi
    if try --run unsaid.md; then echo 'self-test: a line that a command does not say was not found'; missed=1; fi
    [ "$missed" -eq 0 ] && echo "self-test: all $((planted + 2)) planted violations were found"
    return "$missed"
}

case ${1:-} in
--self-test) self_test ;;
--run) shift && check && run_pages "$@" ;;
*) check ;;
esac
