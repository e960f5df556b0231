#!/bin/sh
# Checks that the English and Chinese course have the same content. For README.md and README.zh.md in labs and each lab:
#   1. the same headings, by level and number; in each section the same numbers of list items and table rows;
#   2. the same code blocks, byte by byte;
#   3. the same figure marks with the same values, code words and links, item by item, and in the prose of each section. A link to a page
#      leads to its Chinese one if there is one;
#   4. the same numbers there. Where English has a word (two, first), Chinese may have a digit.
# Of each lab.conf and its lab.zh.conf: the same names of checks, hints and predictions, with the same numbers and code words.
# Only the Chinese page has quotations (>): the translation of a linked English text, such as a specification in a
# file's head. A lab's page that needs such a text must have one.
# A lab without either is a failure. Differences are reported with file and line.
# usage: labs/course/languages.sh                 checks
#        labs/course/languages.sh --self-test     plants differences in two small pages and fails unless each is found
set -u
export LC_ALL=C
cd "${LS_ROOT:-$(dirname "$0")/../..}" || exit 1

# These functions compare two texts.
shared='
    function wrong(file, at, what) { printf "%s:%d: %s\n", file, at, what; bad++ }

    # Removes all matches from text, which is global, and counts them in found[kind, side, token].
    function take(side, kind, pattern, before, after, token) {
        while (match(text, pattern)) {
            token = substr(text, RSTART + before, RLENGTH - before - after)
            text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
            if (kind == "link") token = plain_link(token)
            note(side, kind, token)
        }
    }
    function note(side, kind, token) {
        if (!found[kind, side, token]++) { tokens[side, ++token_count[side]] = token; kinds[side, token_count[side]] = kind }
        seen[kind]++
    }
    function plain_link(target) { # a page and its Chinese one count as equal; headings and so anchors differ
        if (target ~ /\.zh\.md(#|$)/) sub(/#.*/, "", target)
        else if (target ~ /^[^:]*\.md#/ && has_chinese(target)) sub(/#.*/, "", target)
        sub(/\.zh\.md/, ".md", target)
        return target
    }
    function look(side, what, has_words) {
        text = what
        gsub(/[ \t\n]+/, " ", text)
        take(side, "figure", "<!-- [^ ]+ -->[^<]*<!-- / -->", 0, 0)
        take(side, "code word", "`[^`]+`", 1, 1)
        take(side, "link", "\\]\\([^)]*\\)", 2, 1)
        if (side == 1) {
            has_words = " " tolower(text) " "
            gsub(/[^a-z]+/, "  ", has_words)
            english_words = has_words
        }
        take(side, "number", "[0-9]+([.,][0-9]+)*", 0, 0)
    }
    function is_in_words(number, i, list, count) {
        count = split(number_words[number], list, " ")
        for (i = 1; i <= count; i++) if (index(english_words, " " list[i] " ")) return 1
        return 0
    }
    # Two texts, which begin at these lines of their files.
    function compare(english, english_file, english_at, chinese, chinese_file, chinese_at, i, kind, token, mine, theirs) {
        delete found; delete tokens; delete kinds; token_count[1] = token_count[2] = 0
        look(1, english); look(2, chinese)
        for (i = 1; i <= token_count[1]; i++) {
            kind = kinds[1, i]; token = tokens[1, i]; theirs = found[kind, 1, token] + 0; mine = found[kind, 2, token] + 0
            if (mine == 0 || ((kind == "number" || kind == "figure") && mine < theirs))
                wrong(chinese_file, chinese_at, "the " kind " " token " is missing: " english_file ":" line_of(english_file, english_at, english, token) " has it")
        }
        for (i = 1; i <= token_count[2]; i++) {
            kind = kinds[2, i]; token = tokens[2, i]; mine = found[kind, 2, token] + 0; theirs = found[kind, 1, token] + 0
            if (theirs == 0 || ((kind == "number" || kind == "figure") && mine > theirs)) {
                if (kind == "number" && is_in_words(token)) continue
                wrong(chinese_file, line_of(chinese_file, chinese_at, chinese, token), "the " kind " " token " is not in " english_file ":" english_at)
            }
        }
    }
    # Texts keep their newlines and all lines between, since blank lines count.
    function line_of(file, at, what, token, i, list, count) {
        count = split(what, list, "\n")
        for (i = 1; i <= count; i++) if (index(list[i], token)) return at + i - 1
        return at
    }
    BEGIN {
        split("zero none no|one a an once first single|two twice both second half pair|three third|four fourth quarter|five fifth|six sixth|seven seventh|eight eighth|nine ninth|ten tenth", by_number, "|")
        for (i in by_number) number_words[i - 1] = by_number[i]
        number_words[12] = "twelve dozen"; number_words[16] = "sixteen"; number_words[20] = "twenty"; number_words[100] = "hundred"
    }'

# page ENGLISH CHINESE, in that order; PAGES: all Chinese pages.
pages='
    FNR == 1 { side++; file[side] = FILENAME; section = 0; fence = 0; item = 0; start_section() }
    function start_section() {
        section++; items[side, section] = 0; section_line[side, section] = FNR; last = 0
        if (section > sections[side]) sections[side] = section
    }
    function add_prose(line) { # as many lines as the section has so far, so that line_of counts right
        while (prose_lines[side, section] < FNR - section_line[side, section]) { prose[side, section] = prose[side, section] "\n"; prose_lines[side, section]++ }
        prose[side, section] = prose[side, section] line
    }
    /^ *```/ {
        if (!fence) { fence = 1; block_line[side, ++blocks[side]] = FNR }
        else fence = 0
        block[side, blocks[side]] = block[side, blocks[side]] $0 "\n"; item = 0
        next
    }
    fence { block[side, blocks[side]] = block[side, blocks[side]] $0 "\n"; next }
    !fence && /<!-- [a-z0-9-]+ -->[^<]*$/ { wrong(FILENAME, FNR, "a figure mark ends on another line, where make lab-figures does not find it") }
    side == 2 && /^>/ { quotes++; item = 0; next }
    side == 2 && /规格说明|开头的注释/ { needs_quote = FNR }
    /^#+ / { match($0, /^#+/); start_section(); level[side, section] = RLENGTH; item = 0; add_prose($0); next }
    /^\|[-| :]+$/ || /^ *$/ { item = 0; next }
    /^ *([-*]|[0-9]+\.) / || /^\|/ {
        item = ++items[side, section]; items_text[side, section, item] = $0; items_line[side, section, item] = FNR
        marker[side, section, item] = $1
        sub(/^ *([-*]|[0-9]+\.) /, "", items_text[side, section, item])
        next
    }
    item { items_text[side, section, item] = items_text[side, section, item] "\n" $0; next }
    { add_prose($0) }

    function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
    function resolve(target) {
        target = folder_of(file[1]) "/" target
        while (sub(/[^\/]+\/\.\.\//, "", target)) {}
        return target
    }
    function has_chinese(target) { sub(/#.*/, "", target); sub(/\.md$/, ".zh.md", target); return index(" " PAGES " ", " " resolve(target) " ") }
    # Links of the Chinese page to an English page that has a Chinese one, except to its own English page.
    function look_at_links(what, at, rest, target) {
        rest = what
        while (match(rest, /\]\([^)]*\)/)) {
            target = substr(rest, RSTART + 2, RLENGTH - 3); rest = substr(rest, RSTART + RLENGTH)
            if (target ~ /^[^:]*\.md(#|$)/ && target !~ /\.zh\.md/ && resolve(target) != file[1] && has_chinese(target))
                wrong(file[2], line_of(file[2], at, what, target), "the link " target " leads to an English page: there is a Chinese one")
        }
    }
    END {
        if (needs_quote && !quotes && file[2] !~ /^labs\/README/)
            wrong(file[2], needs_quote, "an English text is needed here: its Chinese follows as a quotation (>)")
        for (s = 1; s <= sections[1] || s <= sections[2]; s++) {
            if (s > sections[2]) { wrong(file[2], FNR, "a heading is missing: " file[1] ":" section_line[1, s]); break }
            if (s > sections[1]) { wrong(file[2], section_line[2, s], "a heading that " file[1] " has not"); break }
            if (level[1, s] != level[2, s]) { wrong(file[2], section_line[2, s], "a heading of another level than " file[1] ":" section_line[1, s]); break }
            headings++
            compare(prose[1, s], file[1], section_line[1, s], prose[2, s], file[2], section_line[2, s])
            look_at_links(prose[2, s], section_line[2, s])
            if (items[1, s] != items[2, s]) {
                wrong(file[2], section_line[2, s], "this section has " items[2, s] " list items and table rows, and " file[1] ":" section_line[1, s] " has " items[1, s])
                continue
            }
            for (i = 1; i <= items[1, s]; i++) {
                if (marker[1, s, i] != marker[2, s, i] && marker[1, s, i] ~ /^([-*]|[0-9]+\.)$/)
                    wrong(file[2], items_line[2, s, i], "begins with " marker[2, s, i] ", and " file[1] ":" items_line[1, s, i] " with " marker[1, s, i])
                compare(items_text[1, s, i], file[1], items_line[1, s, i], items_text[2, s, i], file[2], items_line[2, s, i])
                look_at_links(items_text[2, s, i], items_line[2, s, i])
                rows++
            }
        }
        for (b = 1; b <= blocks[1] || b <= blocks[2]; b++) {
            if (b > blocks[2]) { wrong(file[2], FNR, "a code block is missing: " file[1] ":" block_line[1, b]); break }
            if (b > blocks[1]) { wrong(file[2], block_line[2, b], "a code block that " file[1] " has not"); break }
            if (block[1, b] == block[2, b]) continue
            count = split(block[1, b], is, "\n"); more = split(block[2, b], other, "\n")
            for (i = 1; i < count && i < more && is[i] == other[i]; i++) {}
            wrong(file[2], block_line[2, b] + i - 1, "the code block differs from " file[1] ":" (block_line[1, b] + i - 1))
        }
        printf "%d %d %d %d %d\n", headings, rows, blocks[1], seen["figure"] / 2, bad >"/dev/stderr"
    }'

confs='
    function has_chinese(target) { return 0 }
    FNR == 1 { side++; file[side] = FILENAME }
    /^(check|hint|predict|title) / {
        key = $1 == "title" ? $1 : $1 " " $2
        words = $0; sub(/^[^ ]+ +/, "", words); if ($1 != "title") sub(/^[^ ]+ */, "", words)
        if (side == 1 && $1 == "check") { points[key] = words; sub(/ .*/, "", points[key]); sub(/^[^ ]+ +/, "", words) }
        if ((side, key) in at) wrong(FILENAME, FNR, key " is there twice")
        if (words ~ /^ *$/) wrong(FILENAME, FNR, key " has no words")
        if (side == 2 && (key in points) && words ~ ("^" points[key] " ")) wrong(FILENAME, FNR, key " has points, which lab.conf has")
        said[side, key] = words; at[side, key] = FNR; keys[side, ++count[side]] = key
        next
    }
    side == 2 && NF && !/^#/ { wrong(FILENAME, FNR, "only title, check, hint and predict belong here, not " $1) }
    END {
        for (i = 1; i <= count[1]; i++) {
            key = keys[1, i]
            if (!((2, key) in at)) wrong(file[2], FNR, key " is missing: " file[1] ":" at[1, key] " has it")
            else compare(said[1, key], file[1], at[1, key], said[2, key], file[2], at[2, key])
        }
        for (i = 1; i <= count[2]; i++) if (!((1, keys[2, i]) in at)) wrong(file[2], at[2, keys[2, i]], keys[2, i] " is not in " file[1])
        printf "0 0 0 0 %d\n", bad >"/dev/stderr"
    }'

# Readings in the Chinese page that readings.zh.md does not summarise.
unread() {
    [ -f labs/readings.zh.md ] || return 0
    awk -F'|' '/^\| *[0-9]+ *\|/ && NF == 6 { print $5 }' labs/README.zh.md | grep -oE '\]\([^)]*\)' | sort -u | while read -r link; do
        grep -qF "$link" labs/readings.zh.md || echo "labs/readings.zh.md:1: has no summary of $link, which labs/README.zh.md gives to read"
    done
}

check() {
    counts=$(mktemp) || exit 1
    chinese_pages=$(ls labs/*.zh.md labs/[0-9][0-9]-*/*.zh.md 2>/dev/null | tr '\n' ' ')
    labs=0 missing=0
    for english in labs/README.md labs/instructors.md labs/[0-9][0-9]-*/README.md labs/[0-9][0-9]-*/instructors.md labs/[0-9][0-9]-*/lab.conf; do
        [ -f "$english" ] || continue
        chinese=${english%.*}.zh.${english##*.}
        [ -f "$chinese" ] || { echo "$chinese:1: is missing: there is a $english"; missing=$((missing + 1)); continue; }
        case $english in
        *.md) awk -v PAGES="$chinese_pages" "$shared$pages" "$english" "$chinese" 2>>"$counts" ;;
        *) awk "$shared$confs" "$english" "$chinese" 2>>"$counts" && labs=$((labs + 1)) ;;
        esac
    done
    unread=$(unread)
    [ -z "$unread" ] || { echo "$unread"; missing=$((missing + $(echo "$unread" | wc -l))); }
    awk -v labs="$labs" -v missing="$missing" '
        NF != 5 || /[^0-9 ]/ { print; failed = 1; next }
        { headings += $1; items += $2; blocks += $3; figures += $4; bad += $5 }
        END {
            if (bad + missing) { printf "languages: %d differences\n", bad + missing; exit 1 }
            if (failed || !headings || !items || !blocks || !figures || !labs) { print "languages: not everything was checked"; exit 1 }
            printf "languages: %d labs say the same in English and in Chinese: %d headings, %d items and rows, %d code blocks, %d figures\n", labs, headings, items, blocks, figures
        }' "$counts"
    status=$?
    rm "$counts"
    return "$status"
}

# --- self-test ---------------------------------------------------------------------------------------------------------------------

self_test() {
    copy=$(mktemp -d) || exit 1
    trap 'rm -rf "$copy"' EXIT
    lab=$copy/labs/90-sums
    mkdir -p "$lab" "$copy/clean"
    printf '# Course\n\n[中文](README.zh.md)\n\n| lab | minutes |\n|---|---|\n| [90 sums](90-sums/README.md) | 30 |\n\n| week | minutes | labs | read |\n|---|---|---|---|\n| 1 | 30 | 90 | [x](../x.c) |\n' >"$copy/labs/README.md"
    printf '[x](../x.c)\n' >"$copy/labs/readings.zh.md"
    printf '# 课程\n\n[English](README.md)\n\n| 实验 | 分钟 |\n|---|---|\n| [90 求和](90-sums/README.zh.md) | 30 |\n\n| 周 | 分钟 | 实验 | 阅读 |\n|---|---|---|---|\n| 1 | 30 | 90 | [x](../x.c) |\n' >"$copy/labs/README.zh.md"
    printf '# Lab 90\n\n30 minutes, with `add` and [it](../README.md).\n\n## Run\n\n```sh\nmake lab   # two\nmake grade\n```\n\n## See\n\n- Two ranks send <!-- sum -->3 =<!-- / -->\n  bytes, of 1,024 with `--n 2`.\n- The second: 4 and 4, see [common](../../x.c).\n\n| n | of |\n|---|---|\n| 5 | `six` |\n' >"$lab/README.md"
    printf '# 实验 90\n\n30 分钟，用 `add`，见[课程](../README.zh.md)。\n\n## 运行\n\n```sh\nmake lab   # two\nmake grade\n```\n\n## 结果\n\n- 2 个 rank 发送 <!-- sum -->3 =<!-- / --> 字节，\n  共 1,024，用 `--n 2`。\n- 第二：4 和 4，见 [common](../../x.c)。\n\n| n | 共 |\n|---|---|\n| 5 | `six` |\n' >"$lab/README.zh.md"
    printf 'title sums\ncut x.c add\ncheck one 2 the 3 of `add`\nhint one look\ncheck two 3 it ends\npredict sum what is it?\n' >"$lab/lab.conf"
    printf '# 说明\ntitle 求和\ncheck one `add` 的 3\nhint one 看\ncheck two 会结束\npredict sum 是多少？\n' >"$lab/lab.zh.conf"
    cp -r "$copy/labs" "$copy/clean/"
    here=$(pwd)/labs/course/languages.sh
    try() { LS_ROOT=$copy "$here" >"$copy/said" 2>&1; }
    try || { echo 'self-test: the pages themselves are not clean'; cat "$copy/said"; exit 1; }
    planted=0 missed=0
    plant() { # file, sed command, expected message
        planted=$((planted + 1))
        sed -i "$2" "$copy/labs/$1"
        [ -s "$copy/labs/$1" ] || rm "$copy/labs/$1"
        if cmp -s "$copy/labs/$1" "$copy/clean/labs/$1"; then echo "self-test: $1: $2 changes nothing"; missed=1
        elif try; then echo "self-test: not found: $1: $2"; missed=1
        elif ! grep -qF "labs/$3" "$copy/said"; then echo "self-test: $1: $2: does not say \"$3\" but:"; cat "$copy/said"; missed=1; fi
        cp "$copy/clean/labs/$1" "$copy/labs/$1"
    }
    sheet=90-sums/README.zh.md words=90-sums/lab.zh.conf
    plant $sheet 's/^## 结果/### 结果/' "$sheet:12: a heading of another level than labs/90-sums/README.md:12"
    plant $sheet '/^## 结果/d' "$sheet:19: a heading is missing: labs/90-sums/README.md:12"
    plant $sheet '$a\\n## 又一节' "$sheet:22: a heading that labs/90-sums/README.md has not"
    plant $sheet 's/make grade/make  grade/' "$sheet:9: the code block differs from labs/90-sums/README.md:9"
    plant $sheet 's/# two/# 两个/' "$sheet:8: the code block differs"
    plant $sheet '/^```/,/^```/d' "$sheet:16: a code block is missing: labs/90-sums/README.md:7"
    plant $sheet 's/-->3 =<!--/-->4 =<!--/' "$sheet:14: the figure <!-- sum -->4 =<!-- / --> is not in"
    plant $sheet 's/<!-- [^ ]* -->//g' "$sheet:14: the figure <!-- sum -->3 =<!-- / --> is missing: labs/90-sums/README.md:14"
    plant 90-sums/README.md 's/-->3 =</-->3\n=</' '90-sums/README.md:14: a figure mark ends on another line'
    plant $sheet 's/`--n 2`/`--n 3`/' "$sheet:15: the code word --n 3 is not in"
    plant $sheet 's/`add`/add/' "$sheet:1: the code word add is missing: labs/90-sums/README.md:3"
    plant $sheet 's/^- 第二/2. 第二/' "$sheet:16: begins with 2., and labs/90-sums/README.md:16 with -"
    plant $sheet 's/^30 分钟/20 分钟/' "$sheet:3: the number 20 is not in"
    plant $sheet 's/1,024/1,204/' "$sheet:15: the number 1,204 is not in"
    plant $sheet 's/4 和 4/4/' "$sheet:16: the number 4 is missing: labs/90-sums/README.md:16"
    plant $sheet 's/^| 5 /| 6 /' "$sheet:20: the number 6 is not in"
    plant $sheet '/^| 5/d' "$sheet:12: this section has 3 list items and table rows"
    plant $sheet '/^- 第二/d' "$sheet:12: this section has 3 list items and table rows"
    plant $sheet 's/x\.c)/y.c)/' "$sheet:16: the link ../../y.c is not in"
    plant $sheet 's/README\.zh\.md/README.md/' "$sheet:3: the link ../README.md leads to an English page"
    plant $sheet 's/^- 第二/- 第二个文件开头的注释/' "$sheet:16: an English text is needed here"
    plant $sheet d "$sheet:1: is missing"
    plant README.zh.md 's/| 30/| 45/' 'README.zh.md:7: the number 45 is not in'
    plant README.zh.md d 'README.zh.md:1: is missing'
    plant readings.zh.md 's/x\.c/y.c/' 'readings.zh.md:1: has no summary of ](../x.c)'
    plant 90-sums/README.md 's/^## Run/## Read\n\n## Run/' "$sheet:20: a heading is missing"
    plant $words '/^title/d' "$words:5: title is missing: labs/90-sums/lab.conf:1"
    plant $words '/^check two/d' "$words:5: check two is missing: labs/90-sums/lab.conf:5"
    plant $words '/^hint/d' "$words:5: hint one is missing: labs/90-sums/lab.conf:4"
    plant $words '/^predict/d' "$words:5: predict sum is missing: labs/90-sums/lab.conf:6"
    plant $words 's/^predict sum/predict all/' "$words:6: predict all is not in"
    plant $words 's/^check two/check two 3/' "$words:5: check two has points"
    plant $words 's/的 3/的 4/' "$words:3: the number 4 is not in"
    plant $words 's/`add`/`sub`/' "$words:3: the code word sub is not in"
    plant $words 's/看$//' "$words:4: hint one has no words"
    plant $words '$acut x.c add' "$words:7: only title"
    plant $words d "$words:1: is missing"
    [ "$missed" -eq 0 ] && echo "self-test: all $planted planted differences were found"
    return "$missed"
}

if [ "${1:-}" = --self-test ]; then self_test; else check; fi
