#!/bin/sh
# Checks the form of messages and of --help (CONTRIBUTING.md, Messages): what failed, with values; what was expected; what to do.
#   1. at most 200 characters, with a typical width for each value;
#   2. a verb, in each message of three words or more, unless the reason that follows has one ("...: %s");
#   3. no "it", "that" or "one" as the subject of a clause: name the thing;
#   4. no phrase that reads as translated, from the list below, which has a better phrase for each.
# A message is an argument of a reporting call (ls_fail and the others in `reports`) or the `.help` of an option; 2 is
# for the former. Pieces of a message in other functions are not checked.
# usage: tests/check_messages.sh [--list]         checks; --list prints all messages, FILE:LINE: TEXT
#        tests/check_messages.sh --self-test      plants violations in a copy and fails unless each is found
set -u
cd "${LS_ROOT:-$(dirname "$0")/..}" || exit 1

reports='ls_fail ls_report_error ls_warn ls_json_refuse ls_text_fail ls_comm_break ls_engine_refuse ls_launcher_refuse_copies refuse refuse_task fail_file fail_tensor fault_at'
# Verbs of messages, in the forms in which they occur. Add a new one here.
verbs='is are was were be been has have had do does did can cannot could may must need needs
accept accepts account add adds allocate allow allows announce announces answer answers arrive arrives asked assemble attach be begin begins belong belongs bind broke broken
build built bring came change changed changes check choose chooses close closed closes combine compare compared compute computes connect contain contains continue continues
contradict copies count counts create cut cutting declares defines derive describe describes destroyed determine differ differs divide died ended ends exceed exceeds exclude exist exists
expect expected explain extends failed fails fill find fit fits fixed follow follows form found gave get gets give given gives go goes got grow hangs hold holds initialize join joins keep keeps
launched lacks leave leaves left lie lies lists load lost lower made make makes mean means measure measured measures meet merge moved name named names need occur occurs open overlap overwrite pass passes
planned poses precede print prints publish published put raise reach read reads reached record recorded reduce reduces refuse refuses rejoin replace report reported restart run runs save say says see seek sent serve
serves set share shares shorten show shows spread start started starts stop stopped stops store sums sync take takes tell tells timed train trains try turn use used uses wait waits work works would write
writes wrote'
# The phrase to write instead, after "=".
phrases='is no =is not a
are no =are not
is none=does not exist
nobody=no process, no rank
nobody knows=is not known
in vain=timed out after ... waiting for
do without=use ... instead
does without=use ... instead
says why=see its error
said why=see its error
another one=a different ...
other ones=others
which is no =which is not a
says nothing=does not name
at all=(leave out)'

messages() {
    git ls-files -coz --exclude-standard -- 'common/*' 'kernels/*' 'dp_threads/*' 'ddp_procs/*' 'library/*' 'labs/*' |
        tr '\0' '\n' | grep -E '\.(c|h|cu|cuh|def)$' | tr '\n' '\0' | xargs -0 awk -v reports="$reports" '
        # A line for each literal of a call, adjacent ones joined: FILE, line, kind (1: the first one, the format; 2: a piece; help), text.
        function put() { if (text != "") printf "%s\t%d\t%s\t%s\n", FILENAME, start, kind, text; if (text != "" && kind == 1) kind = 2; text = "" }
        BEGIN { split(reports, name, " "); calls = ""; for (i = 1; i in name; i++) calls = calls "|" name[i]
                calls = "(^|[^A-Za-z_>.])(" substr(calls, 2) ")\\(|\\.help = " }
        FNR == 1 { depth = 0 }
        depth == 0 && !index($0, "ls_") && !index($0, "fail_") && !index($0, "refuse") && !index($0, "fault_at") && !index($0, ".help") { next }
        {
            line = $0
            while (line != "") {
                if (depth == 0) {
                    if (!match(line, calls)) break
                    kind = substr(line, RSTART, RLENGTH) ~ /help/ ? "help" : 1
                    line = substr(line, RSTART + RLENGTH); depth = 1; start = FNR; text = ""
                }
                c = substr(line, 1, 1); step = 1
                if (c == " " || c == "\t") {
                    match(line, /^[ \t]+/); step = RLENGTH
                } else if (c == "\"") {
                    match(line, /^"([^"\\]|\\.)*"/); step = RLENGTH; text = text substr(line, 2, step - 2)
                } else if (match(line, /^PRI[A-Za-z0-9]+/)) {
                    step = RLENGTH; text = text "d"
                } else if (substr(line, 1, 2) == "/*") {
                    step = index(line, "*/") ? index(line, "*/") + 1 : length(line)
                } else {
                    put()
                    if (match(line, /^[A-Za-z0-9_.>-]+/)) step = RLENGTH
                    else if (match(line, /^\047([^\047\\]|\\.)*\047/)) step = RLENGTH
                    else if (c == "(") depth++
                    else if (c == ")" || (kind == "help" && (c == "," || c == "}"))) depth = kind == "help" ? 0 : depth - 1
                }
                line = substr(line, step + 1)
            }
        }'
}

check() {
    messages | awk -F'\t' -v verbs="$verbs" -v phrases="$phrases" '
        function bad(why) { printf "%s:%s: %s: \"%s\"\n", $1, $2, why, $4; wrong++ }
        # The text with a typical value for each conversion.
        function shown(text,    out, c) {
            out = ""
            while (match(text, /%[-+ #0]*(\*|[0-9]+)?(\.(\*|[0-9]+))?(hh|h|ll|l|z|j|t)?[a-zA-Z%]/)) {
                c = substr(text, RSTART + RLENGTH - 1, 1)
                out = out substr(text, 1, RSTART - 1) (c == "%" ? "%" : c == "s" ? "VVVVVVVVVVVV" : c == "c" ? "V" : "1234")
                text = substr(text, RSTART + RLENGTH)
            }
            return out text
        }
        # "it" at the beginning of a clause; "that" and "one" there as pronouns, not before a noun.
        function has_pronoun(text,    next_word) {
            gsub(/so that /, "so ", text)
            while (match(text, /(^|[;:.,(?!] *)((and|but|or|so|then) )?(it|that|one)(\047s)? [a-z]+/)) {
                next_word = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
                if (next_word ~ /it(\047s)? [a-z]+$/) return 1
                sub(/.* /, "", next_word)
                if (next_word in is_verb || next_word ~ /^(of|that|which)$/) return 1
            }
            return 0
        }
        BEGIN { count = split(verbs, list, /[ \n]+/); for (i = 1; i <= count; i++) is_verb[list[i]] = 1; lines = split(phrases, phrase, "\n") }
        {
            text = shown($4); gsub(/\\"/, "\"", text); gsub(/\\\\/, "\\", text); seen++
            if (length(text) > 200) bad("longer than 200 characters (" length(text) ")")
            plain = tolower(text); gsub(/[^a-z_\047]+/, " ", plain)
            words = split(plain, word, " "); verb = 0; real = 0
            for (i = 1; i <= words; i++) { verb = verb || word[i] in is_verb; real += word[i] ~ /[a-z]/ && word[i] !~ /^v+$/ }
            if ($3 == 1 && real >= 3 && !verb && $4 !~ /[:)] %s$/) bad("no verb")
            if (has_pronoun(tolower(text))) bad("\"it\", \"that\" or \"one\" as a subject")
            text = tolower(text); gsub(/there is no /, "there is not any ", text)
            for (i = 1; i <= lines; i++) {
                split(phrase[i], part, "=")
                if (index(" " text " ", " " part[1])) bad("\"" part[1] "\": write \"" part[2] "\"")
            }
        }
        END { if (wrong) exit 1; if (seen < 500) { print "only " seen + 0 " messages found: the check is broken"; exit 1 } printf "messages: %d texts have the form of CONTRIBUTING.md\n", seen }'
}

# Each planted message must make the check fail, with the reason given.
self_test() {
    copy=$(mktemp -d) || exit 1
    trap 'rm -rf "$copy"' EXIT
    git ls-files -co --exclude-standard -z -- tests/check_messages.sh common kernels dp_threads ddp_procs library labs | xargs -0 cp --parents -t "$copy" 2>/dev/null
    (cd "$copy" && git init -q .) || exit 1
    LS_ROOT=$copy "$copy/tests/check_messages.sh" >/dev/null || { echo 'self-test: the copy itself is not clean'; exit 1; }
    missed=0 planted=0
    plant() { # reason, line
        planted=$((planted + 1))
        printf '%s\n' "$2" >"$copy/common/base/planted.c"
        LS_ROOT=$copy "$copy/tests/check_messages.sh" | grep -q "planted.c:1: $1" || { echo "self-test: not found: $1: $2"; missed=1; }
        rm "$copy/common/base/planted.c"
    }
    long='the value is far too long, '
    plant 'longer than 200 characters' "    return ls_fail(LS_ERR_IO, \"$long$long$long$long\" \"$long$long$long$long\");"
    plant 'longer than 200 characters' "    {.name = \"x\", .help = \"$long$long$long$long\"
        \"$long$long$long$long\"},"
    plant 'no verb' '    return ls_fail(LS_ERR_IO, "no memory for a table of %zu cells", n);'
    plant 'no verb' '    ls_json_refuse(json, item, "a line of %zu bytes; at most %" PRIu64, n, most);'
    plant '"it", "that" or "one" as a subject' '    return ls_fail(LS_ERR_IO, "cannot read %s: it is a folder", path);'
    plant '"it", "that" or "one" as a subject' '    ls_warn("rank %d failed; that is the reason", rank);'
    plant '"it", "that" or "one" as a subject' '    ls_report_error("%s", bad ? "" : "one is missing, and must be there");'
    plant '"it", "that" or "one" as a subject' '    {.name = "x", .help = "the size of a bucket. It is given in MiB"},'
    plant '"is no "' '    return ls_fail(LS_ERR_IO, "%s is no folder", path);'
    plant '"in vain"' '    return ls_comm_break(comm, LS_ERR_TIMEOUT, what,
        "rank %d waited %g s in vain", rank, s);'
    [ "$missed" -eq 0 ] && echo "self-test: all $planted planted violations were found"
    return "$missed"
}

case ${1:-} in
--self-test) self_test ;;
--list) messages | awk -F'\t' '{ printf "%s:%s: %s\n", $1, $2, $4 }' ;;
*) check ;;
esac
