# The targets that make offers: "NAME: ... ## WORDS" in the makefiles. Omits targets whose recipe names a script that
# this tree lacks: a handout has none for instructors.
# usage: awk -f labs/course/help.awk MAKEFILE...
function is_there(file,    line, there) {
    there = (getline line <file) >= 0
    close(file)
    return there
}
function show() {
    if (line != "" && !is_missing) print line
    line = ""; is_missing = 0
}
/^[a-z -]+:.*## / { show(); target = $0; sub(/:.*/, "", target); words = $0; sub(/^.*## /, "", words); line = sprintf("  %-18s %s", target, words); next }
/^\t/ {
    rest = $0
    while (match(rest, /(labs|tests)\/[a-z_\/]*[a-z_]\.sh/)) {
        if (!is_there(substr(rest, RSTART, RLENGTH))) is_missing = 1
        rest = substr(rest, RSTART + RLENGTH)
    }
    next
}
{ show() }
END { show() }
