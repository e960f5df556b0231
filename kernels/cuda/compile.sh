#!/bin/sh
# Runs nvcc, and fails if a kernel cannot be as fast as intended: if registers were spilled to memory, or static shared
# memory exceeds the 48 KiB that every chip gives a block. Prints a line for each, with file, kernel, chip and bytes.
# Forwards nvcc's other output, without ptxas's figures.
# usage: kernels/cuda/compile.sh FILE NVCC...      (FILE: the source, for messages; NVCC: the command, with -Xptxas -v)
set -u
export LC_ALL=C
[ $# -ge 2 ] || { echo "usage: $0 FILE NVCC..." >&2; exit 2; }
file=$1
shift
said=$("$@" 2>&1)
status=$?

# ptxas describes a kernel in four lines: its name and chip; the function in question; its stack and spills; registers
# and shared memory.
wrong=$(printf '%s\n' "$said" | awk -v file="$file" -v status="$status" '
    function number_before(words) { return match($0, "[0-9]+ " words) ? substr($0, RSTART) + 0 : 0 }
    function from_hex(text, value, i) {
        for (i = 3; i <= length(text); i++) value = 16 * value + index("0123456789abcdef", tolower(substr(text, i, 1))) - 1
        return value
    }
    function report(name, what) { printf "%s: kernel \t%s\t%s %s\n", file, name, chip ? " (" chip ")" : "", what; bad = 1 }
    function report_shared(name, bytes) { report(name, "has " bytes " bytes of static shared memory; 49152 are the most") }

    /^ptxas info *: Compiling entry function / { split($0, quoted, "\047"); name = quoted[2]; chip = quoted[4]; kernels++; next }
    /^ptxas info *: Function properties for / { name = $NF; next }
    /bytes spill stores/ {
        stores = number_before("bytes spill stores"); loads = number_before("bytes spill loads"); spill_lines++
        if (stores + loads > 0) report(name, "spills registers: " stores " bytes of stores and " loads " of loads")
        next
    }
    /^ptxas info *: Used [0-9]+ registers/ {
        bytes = number_before("bytes smem"); used_lines++
        if (bytes > 49152) { report_shared(name, bytes); delete refused[name] }
        next
    }
    /^ptxas error *: Entry function .* uses too much shared data/ {
        split($0, quoted, "\047"); match($0, /0x[0-9a-f]+/); refused[quoted[2]] = from_hex(substr($0, RSTART, RLENGTH)); next
    }
    /^ptxas info / { others++; next }
    /./ { print }
    END {
        for (name in refused) report_shared(name, refused[name])
        if (status == 0 && (kernels + others == 0 || spill_lines < kernels || used_lines < kernels)) {
            printf "%s: ptxas described %d kernels, not in the way that compile.sh can read: whether they spill is not known\n", file, kernels
            bad = 1
        }
        exit bad
    }')
judged=$?
[ "$status" -ne 0 ] || status=$judged

# Names between tabs, as in the source: without the name of the file's anonymous namespace, result and arguments.
demangle() {
    if command -v c++filt >/dev/null; then c++filt; else cat; fi |
        sed -E 's/_GLOBAL__N__[0-9A-Za-z_]*:://g; s/\(anonymous namespace\):://g; s/\t(void )?([^(\t]*)[^\t]*\t/\2/'
}
[ -z "$wrong" ] || printf '%s\n' "$wrong" | demangle >&2
exit "$status"
