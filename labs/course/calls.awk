# Prints the undefined names of a solution that it may not use, a line each.
# usage: awk -v denied="NAME..." -f labs/course/calls.awk labs/course/may_use EXPORTED NAMES
# EXPORTED: a file with the names that the library defines, a line each; denied: the lab's own exceptions (lab.conf). *
# stands for any letters.

function pattern(name) { gsub(/\*/, "[A-Za-z0-9_]*", name); return name }
function has(key, name) { return patterns[key] != "" && name ~ ("^(" substr(patterns[key], 2) ")$") }
function list(key, text,   names, i, n) { n = split(text, names); for (i = 1; i <= n; i++) patterns[key] = patterns[key] "|" pattern(names[i]) }

BEGIN { list("closed", denied) }
FILENAME == ARGV[1] { key = $1; sub(/^[^ ]* */, ""); if (key ~ /^(call|product|closed|reports)$/) list(key, $0); next }
FILENAME == ARGV[2] { exported[$1] = 1; next }
has("call", $1) || has("reports", $1) { next }
($1 in exported) && has("product", $1) && !has("closed", $1) { next }
{ print $1 }
