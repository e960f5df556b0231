# Finds twins of function bodies: the same tokens in another file, whatever the names. So it finds a solution that also
# exists as a CUDA kernel, a test's model or an example in a page.
# usage: awk -f labs/course/twins.awk BODIES FILE...     BODIES: a line "@ NAME" before each body; prints "NAME FILE:LINE COVERED %"
# exit status 1: there is one
#
# A name, and a path of members (a->scaler->scale), is one token; types, struct and const are left out. A file has a
# twin if runs of RUN tokens in common with the body cover MOST per cent of its tokens, within a window twice as long. A
# run that more than IDIOM files have does not count. A body with fewer than LEAST remaining tokens is skipped.
# -v ALL=30: prints all with a coverage of at least 30 %.
BEGIN {
    RUN = 10; MOST = 65; LEAST = 30; IDIOM = 4
    for (i = split("if else for while do return switch case break continue", words, " "); i; i--) keyword[words[i]] = 1
    for (i = split("struct const static inline unsigned union enum", words, " "); i; i--) left_out[words[i]] = 1
}

function path(text) { sub(/->|\./, "_", text); return text }

# Removes comments. In a page or a script, /* may be a pattern: lib/*.c.
function without_comments(line,    rest) {
    if (FILENAME ~ /\.(py|awk|sh)$/) sub(/#.*/, "", line)
    if (FILENAME !~ /\.(c|h|cu|cuh|patch)$/ && name == "") return line
    if (in_comment) {
        if (!match(line, /\*\//)) return ""
        line = substr(line, RSTART + 2); in_comment = 0
    }
    while (match(line, /\/\*/)) {
        rest = substr(line, RSTART + 2); line = substr(line, 1, RSTART - 1)
        if (!match(rest, /\*\//)) { in_comment = 1; break }
        line = line " " substr(rest, RSTART + 2)
    }
    sub(/\/\/.*/, "", line)
    return line
}

# Appends the tokens of a line to token[1 .. count], each with its line's number.
function take(line,    word, is_joined) {
    if (FILENAME ~ /\.patch$/) sub(/^[-+ ]/, "", line)
    gsub(/"([^"\\]|\\.)*"/, "\"", line)
    gsub(/'([^'\\]|\\.)'/, "\"", line)
    line = without_comments(line)
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*(->|\.)[A-Za-z_]/)) # a path is one name
        line = substr(line, 1, RSTART - 1) path(substr(line, RSTART, RLENGTH)) substr(line, RSTART + RLENGTH)
    is_joined = 0
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*|[0-9][A-Za-z0-9.]*|[^ \t]/)) {
        word = substr(line, RSTART, RLENGTH); line = substr(line, RSTART + RLENGTH)
        if (word ~ /^[;{}:]$/) { is_joined = 0; continue } # other languages have none of these
        if (word in left_out) continue
        if (is_joined && is_name(word) && is_name(token[count])) { token[count] = word; continue } # a type before its name
        if (word ~ /^[0-9]/) sub(/[a-z]+$/, "", word)
        token[++count] = word; at[count] = FNR; is_joined = 1
    }
}

function is_name(word) { return word ~ /^[A-Za-z_]/ && !(word in keyword) }

# The run at token i, with each name replaced by its number within the run.
function run_at(i,    k, text, number, names) {
    split("", number); names = 0
    for (k = i; k < i + RUN; k++) {
        if (!is_name(token[k])) { text = text " " token[k]; continue }
        if (!(token[k] in number)) number[token[k]] = ++names
        text = text " i" number[token[k]]
    }
    return text
}

function keep_body(    i, gram) {
    if (name == "" || count < LEAST) { if (name != "") skipped = skipped " " name; return }
    bodies[++body_count] = name; size[body_count] = count
    for (i = 1; i + RUN - 1 <= count; i++) {
        gram = body_run[body_count, i] = run_at(i)
        places[gram] = places[gram] " " body_count ":" i
    }
}

# Records the file's runs that are also a body's: the n-th, run_is[n], at token run_token[n] of file_of[n].
function look(    i, gram) {
    for (i = 1; i + RUN - 1 <= count; i++) {
        gram = run_at(i)
        if (!(gram in places)) continue
        if (last_file[gram] != file) { last_file[gram] = file; files_with[gram]++ }
        run_is[++runs] = gram; run_token[runs] = i; run_line[runs] = at[i]; file_of[runs] = file
    }
}

# Compares the tokens of body b in runs that are not idioms with those of a file within a window twice as long.
function judge(b,    i, k, n, own, own_count, h, hits, first, seen, covered, best) {
    for (i = 1; i + RUN - 1 <= size[b]; i++)
        if (files_with[body_run[b, i]] <= IDIOM) for (k = 0; k < RUN; k++) if (!own[i + k]++) own_count++
    if (own_count < LEAST) { skipped = skipped " " bodies[b]; return }
    hits = 0
    for (n = 1; n <= runs; n++) {
        if (files_with[run_is[n]] > IDIOM || !index(places[run_is[n]] " ", " " b ":")) continue
        hit[++hits] = n
    }
    for (first = 1; first <= hits; first = h) {
        split("", seen); covered = 0; n = hit[first]
        for (h = first; h <= hits && file_of[hit[h]] == file_of[n] && run_token[hit[h]] - run_token[n] < 2 * size[b]; h++)
            for (i = 1; i + RUN - 1 <= size[b]; i++)
                if (body_run[b, i] == run_is[hit[h]]) for (k = 0; k < RUN; k++) if (!seen[i + k]++) covered++
        if (100 * covered < (ALL ? ALL : MOST) * own_count) continue
        printf "%s %s:%d %d %%\n", bodies[b], file_of[n], run_line[n], 100 * covered / own_count
        found = 1
    }
}

function finish_file() { if (file != "") look(); file = FILENAME; count = 0; in_comment = 0; token[0] = "" }

FNR == 1 && NR > 1 { if (file == "") { keep_body(); name = "" } finish_file() }
FNR == NR && /^@ / { keep_body(); name = $2; count = 0; in_comment = 0; next }
{ take($0) }
END { finish_file(); for (b = 1; b <= body_count; b++) judge(b); if (skipped != "" && ALL) print "too short:" skipped; exit found }
