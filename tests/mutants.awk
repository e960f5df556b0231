# Lists the possible mutants of C files, one a line, with tabs between: a random key, file, line, column, old text, new text.
# usage: awk -v seed=N -f tests/mutants.awk FILE...
BEGIN { operators = split("== != < <= > >= + - += -= && ||", from, " "); split("!= == <= < >= > - + -= += || &&", to, " "); state = seed + 1 }

function site(at, length_, new) {
    printf "%d\t%s\t%d\t%d\t%s\t%s\n", state = (state * 16807) % 2147483647, FILENAME, FNR, at, substr($0, at, length_), new
}

# The line, with blanks for comments and texts
function code_of(line,   out, n, end) {
    for (out = ""; line != ""; line = substr(line, n + 1)) {
        n = 0
        if (in_comment) { end = index(line, "*/"); n = end ? end + 1 : length(line); in_comment = !end }
        else if (substr(line, 1, 2) == "/*") { n = 2; in_comment = 1 }
        else if (match(line, /^("([^"\\]|\\.)*"|'([^'\\]|\\.)*'|\/\/.*)/)) n = RLENGTH
        if (n) { out = out sprintf("%" n "s", ""); continue }
        match(line, /^.[^"'\/]*/)
        out = out substr(line, 1, n = RLENGTH)
    }
    return out
}

# How long the bracket that begins at a column is; 0 if it does not end in this line
function bracketed(code, at,   i, c, open) {
    for (i = at; i <= length(code); i++) {
        c = substr(code, i, 1)
        open += (c == "(") - (c == ")")
        if (!open) return i - at + 1
    }
    return 0
}

FNR == 1 { in_comment = in_macro = in_message = 0 }
{
    code = code_of($0)
    if (in_macro || code ~ /^ *#/) { in_macro = code ~ /\\$/; next }
    if (in_message) { in_message = code !~ /;/; next }
    if (match(code, /ls_(fail|log)[a-z_]*\(/)) { in_message = substr(code, RSTART) !~ /;/; code = substr(code, 1, RSTART - 1) }
    sub(/ +$/, "", code)
    before = previous
    if (code != "") previous = code
}
code ~ /^ / { # within a function or a table
    for (o = 1; o <= operators; o++)
        for (at = 0; n = index(substr(code " ", at + 1), " " from[o] " "); ) site((at += n) + 1, length(from[o]), to[o])
    for (at = 1; match(substr(code, at), /[A-Za-z0-9_.]+/); at += RLENGTH) {
        word = substr(code, at += RSTART - 1, RLENGTH)
        if (word ~ /^[0-9]+[uUlL]*$/ && sub(/[uUlL]*$/, "", word)) site(at, length(word), word + 1)
    }
    for (at = 1; match(substr(code, at), /[(,] ?[][A-Za-z0-9_&*.>-]+, [][A-Za-z0-9_&*.>-]+[,)]/); at += index(substr(code, at), ",")) {
        n = RLENGTH - 2 - (substr(code, at + RSTART, 1) == " ")
        at += RSTART + RLENGTH - 2 - n
        split(substr(code, at, n), side, ", ")
        if (side[1] != side[2]) site(at, n, side[2] ", " side[1])
    }
    if (match(code, /(if|while) \(/) && n = bracketed(code, at = RSTART + RLENGTH - 1)) site(at, n, "(!" substr($0, at, n) ")")
    if (before ~ /([;{}):]|else)$/ && code ~ /^ +[a-z_*(][^ ]*(\(.*\)| [-+*\/|&^]?= .*|\+\+|--);$/ && code !~ /^ +free\(/ &&
        bracketed("(" code ")", 1) == length(code) + 2) {
        match(code, /[^ ].*/)
        site(RSTART, RLENGTH, "(void)0;")
    }
}
