# Applies one entry of a lab's bugs.txt or correct.txt to C files, in place.
# usage: awk -v name=ENTRY -f labs/course/plant.awk LIST FILE...
# exit status 1, one line on stderr, and no file changed: there is no such entry, or a part of it does not apply.
#
# An entry begins with "bug NAME: CHECK" (CHECK: the check that must catch it) or "form NAME" (correct code of another form). Its parts:
#   in FUNCTION     the lines "-old" of its definition become the lines "+new"; several such pairs may follow each other. Old lines must
#                   occur exactly once; their indentation does not matter. Without old lines the new ones become the first of the body.
#                   A function of one line is such an old line.
#   body FUNCTION   the lines "+new" become the whole body.
#   above FUNCTION  the lines "+new" go above its definition (and above the comment there).
# Lines that begin with "#" are comments. Relies on the tree's layout, as cut.awk does.

function trimmed(text) { sub(/^[ \t]+/, "", text); sub(/[ \t\r]+$/, "", text); return text }

function fail(text) { printf "%s: entry %s: %s\n", list, name, text > "/dev/stderr"; failed = 1; exit 1 }

# Opens a change: its kind and its function.
function open_part(how, function_name) { parts++; kind[parts] = how; where[parts] = function_name; old_count[parts] = new_count[parts] = 0 }

NR == 1 { list = FILENAME }
FILENAME == list && /^#/ { next }
FILENAME == list && /^(bug|form) / {
    entry = $2; sub(/:$/, "", entry)
    inside = entry == name
    found += inside
    next
}
FILENAME == list && !inside { next }
FILENAME == list && /^(in|body|above) / { open_part($1, $2); next }
FILENAME == list && /^-/ {
    if (new_count[parts] > 0) open_part(kind[parts], where[parts]) # a further pair
    old[parts, ++old_count[parts]] = trimmed(substr($0, 2))
    next
}
FILENAME == list && /^\+/ { fresh[parts, ++new_count[parts]] = substr($0, 2); next }
FILENAME == list { if ($0 !~ /^[ \t]*$/) fail("line " FNR " is neither a part nor a line of one: " $0); next }
FNR == 1 { files++; path[files] = FILENAME; count[files] = 0 }
{ text[files, ++count[files]] = $0 }

# Finds a definition: first and last (from its head to its "}"), and opens (the line of its "{"; if its body is on that line, also last);
# 0 if file f has none.
function find(f, function_name, i) {
    for (i = 1; i <= count[f]; i++) {
        if (text[f, i] !~ ("^[a-z][A-Za-z0-9_ *]*[ *]" function_name "\\(")) continue
        first = opens = i
        while (opens <= count[f] && text[f, opens] !~ /[{};]$/) opens++
        if (text[f, opens] !~ /[{}]$/) continue # a declaration
        last = opens
        if (text[f, opens] ~ /\{$/) while (last <= count[f] && text[f, last] != "}") last++
        return 1
    }
    return 0
}

# The line of the function (first to last) where old lines of a part begin; fails unless they occur exactly once.
function place_of(f, p, i, j, at, times) {
    for (i = opens; i + old_count[p] - 1 <= last; i++) {
        for (j = 1; j <= old_count[p] && trimmed(text[f, i + j - 1]) == old[p, j]; j++) {}
        if (j > old_count[p]) { at = i; times++ }
    }
    if (times != 1) fail("in " where[p] " the old lines stand " times + 0 " times, and should once: " old[p, 1])
    return at
}

# In file f, the part's new lines replace lines from .. to (to = from - 1: none).
function replace(f, p, from, to, i, rest, total) {
    total = 0
    for (i = to + 1; i <= count[f]; i++) rest[++total] = text[f, i]
    count[f] = from - 1
    for (i = 1; i <= new_count[p]; i++) text[f, ++count[f]] = fresh[p, i]
    for (i = 1; i <= total; i++) text[f, ++count[f]] = rest[i]
}

function apply(p, f, at) {
    for (f = 1; f <= files && !find(f, where[p]); f++) {}
    if (f > files) fail("there is no function " where[p])
    if (opens == last && kind[p] != "above" && old_count[p] == 0) fail(where[p] " is written on one line: replace that line")
    if (kind[p] == "body") replace(f, p, opens + 1, last - 1)
    else if (kind[p] == "in" && old_count[p] == 0) replace(f, p, opens + 1, opens)
    else if (kind[p] == "in") { at = place_of(f, p); replace(f, p, at, at + old_count[p] - 1) }
    else {
        while (first > 1 && text[f, first - 1] != "" && text[f, first - 1] !~ /^[#}]/) first--
        replace(f, p, first, first - 1)
    }
}

END {
    if (failed) exit 1
    if (found != 1) fail("it is there " found + 0 " times, and should be once")
    if (parts == 0) fail("it changes nothing")
    for (p = 1; p <= parts; p++) apply(p)
    for (f = 1; f <= files; f++) {
        for (i = 1; i <= count[f]; i++) print text[f, i] > path[f]
        close(path[f])
    }
}
