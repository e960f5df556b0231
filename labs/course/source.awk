# Checks the text of a solution before it is compiled. Prints "include NAME" for each header that it includes, or, as
# the last line, "closed LINE WHAT": a forbidden construct. labs/course/may_use has the lists.
# usage: awk -f labs/course/source.awk labs/course/may_use FILE
# idea   : phases 2 and 3 of a C compiler: lines that end in a backslash are joined, comments and literals go. Every word
#          of the text counts, whether a macro uses it or not. So nothing may make a word out of others (##, _Pragma) or give
#          another meaning to the words that are checked (#define unused, an attribute in a macro)
# closed : assembler, names reserved for the compiler, directives that change what the compiler does or where it
#          thinks it is, headers by a computed name, attributes beyond the list, other spellings of # and [

function list(key,   i) { for (i = 2; i <= NF; i++) patterns[key] = patterns[key] "|" pattern($i) }
function pattern(name) { gsub(/\*/, "[A-Za-z0-9_]*", name); return name }
function has(key, name) { return name ~ ("^(" substr(patterns[key], 2) ")$") }
function close_it(what) { print "closed " line " " what; closed = 1; exit }

# Removes comments, and the content of literals except an include's name.
function strip(text,   out, mark, whole, body) {
    out = ""
    while (1) {
        if (in_comment) {
            if (!match(text, /\*\//)) return out
            text = substr(text, RSTART + 2); out = out " "; in_comment = 0
        }
        if (!match(text, /["']|\/\/|\/\*/)) return out text
        out = out substr(text, 1, RSTART - 1); mark = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
        if (mark == "//") return out
        if (mark == "/*") { in_comment = 1; continue }
        whole = mark == "\"" ? match(text, /^([^"\\]|\\.)*"/) : match(text, /^([^'\\]|\\.)*'/)
        body = whole ? substr(text, 1, RLENGTH - 1) : text
        out = out mark ((pending out mark) ~ /^ *# *include *"$/ ? body : "") mark
        text = whole ? substr(text, RLENGTH + 1) : ""
    }
}

function look_at_include(text,   name, quoted) {
    if (text !~ /^ *# *include *("[A-Za-z0-9_.\/+-]+"|<[A-Za-z0-9_.\/+-]+>) *$/) close_it("#include of a computed or unusual name")
    name = text; sub(/^[^"<]*["<]/, "", name); sub(/[">] *$/, "", name)
    if (name ~ /^\// || name ~ /(^|\/)\.\.(\/|$)/) close_it("#include \"" name "\", which leads out of the tree")
    if (name !~ /\.(h|def)$/) close_it("#include \"" name "\", which is no header")
    print "include " name
}

function look_at_define(text,   name) {
    name = text; sub(/^ *# *define */, "", name); sub(/[^A-Za-z0-9_].*/, "", name)
    if (has("attribute", name)) close_it("#define " name)
    if (text ~ /__attribute/) close_it("__attribute__ in a macro")
}

function look_at_directive(text,   name) {
    name = text; sub(/^ *# */, "", name); sub(/[^A-Za-z0-9_].*/, "", name)
    if (name == "include") look_at_include(text)
    else if (name == "define") look_at_define(text)
    else if (name == "pragma" && text ~ /^ *# *pragma +once *$/) return
    else if (name !~ /^(|undef|if|ifdef|ifndef|elif|else|endif|error|warning)$/ || text ~ /^ *# *[^ A-Za-z]/) close_it("#" name)
}

function look_at_word(word,   name) {
    name = word; gsub(/^__|__$/, "", name)
    if (depth == 2 && (before == "(" || before == ",")) { # an attribute's own name
        if (!has("attribute", name)) close_it("the attribute " word)
    } else if (word == "asm" || word == "_Pragma" || word ~ /^__/ && !has("word", word)) close_it(word)
    if (word ~ /^__attribute/) awaits_attribute = 1
}

function look_at_text(text,   token) {
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*|[^ ]/)) {
        token = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
        if (token == "[" && before == "[") close_it("[[")
        if (token ~ /^[A-Za-z_]/) look_at_word(token)
        if (token == "(" && (awaits_attribute || depth)) { depth++; awaits_attribute = 0 }
        if (token == ")" && depth) depth--
        before = token
    }
}

function look_at(text) {
    if (text ~ /##/) close_it("##")
    if (text ~ /<:|%:/) close_it("a digraph")
    if (text ~ /\\/) close_it("a backslash outside of a text")
    if (text ~ /^ *#/) look_at_directive(text)
    if (text !~ /^ *# *(include|if|elif|else|endif|error|warning|pragma)/) look_at_text(text)
    else if (text ~ /__has_|__SANITIZE|__asan|_Pragma/) close_it("a question about the compiler")
}

FNR == NR { if ($1 ~ /^(attribute|word)$/) list($1); next }
{
    gsub(/[\t\r\f\v]/, " ")
    if ($0 ~ /[?][?][=\/'()!<>-]/) { line = FNR; close_it("a trigraph") }
    if (!joined && pending == "") line = FNR
    whole = whole $0
    if (length(whole) > 20000) close_it("a line of more than 20,000 characters")
    if (whole ~ /\\ *$/) { sub(/\\ *$/, "", whole); joined = 1; next }
    pending = pending strip(whole); whole = ""; joined = 0
    if (length(pending) > 20000) close_it("a line of more than 20,000 characters")
    if (in_comment) next
    look_at(pending); pending = ""
}
