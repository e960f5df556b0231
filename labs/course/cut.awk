# Replaces the body of one function in a C file by a stub that reports that it is not written yet. The comment above the
# function stays. A CUDA kernel or device function has to be void. Relies on the tree's layout (clang-format): a
# definition begins in column 0, its "{" ends a line, its "}" is alone in column 0. A template may be a member; then
# both are indented.
# usage: awk -v name=ls_allreduce_ring -v lab=03 -f labs/course/cut.awk FILE
#        awk -v name=ls_allreduce_ring -v body=1 -f labs/course/cut.awk FILE     prints the body instead
# exit status 1: there is no such function

function put_stub(text, type) {
    if (text ~ /^( *template <.*> )?__(global|device)__ /) { printf "%s    ls_todo_on_device(\"%s\");\n%s}\n", indent, lab, indent; return }
    type = text; sub("[ ]*" name "\\(.*", "", type)
    if (text ~ ("\\*" name "\\(")) type = substr(text, 1, index(text, name "(") - 1)
    sub(/^static /, "", type); sub(/^(inline|LS_ALWAYS_INLINE) /, "", type); sub(/[ ]+$/, "", type)
    printf "    ls_todo(\"%s\");\n", lab
    if (type != "void") printf "    return (%s){0};\n", type
    print "}"
}

BEGIN { pattern = "^( *template <[^>]*> )?[a-z_][A-Za-z0-9_ *]*[ *]" name "\\(" }
skipping { if ($0 == indent "}") skipping = 0; else if (body) print; next }
collecting || $0 ~ pattern {
    text = collecting ? text " " $0 : $0
    lines = collecting ? lines "\n" $0 : $0
    if (!collecting) { indent = $0; sub(/[^ ].*/, "", indent) }
    collecting = 1
    if ($0 ~ /;$/) { if (!body) print lines; collecting = 0; next } # a declaration
    if ($0 !~ /\{.*$/) next
    collecting = 0
    gsub(/[ ]+/, " ", text)
    one_line = $0 ~ /\}$/
    sub(/\{.*$/, "{", text); sub(/\{.*$/, "{", lines)
    if (!body) { print lines; put_stub(text) }
    found++
    skipping = !one_line
    next
}
!body { print }
END { if (!found) { printf "%s: there is no function %s to take out\n", FILENAME, name > "/dev/stderr"; exit 1 } }
