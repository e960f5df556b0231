#!/bin/sh
# Fuzzing with libFuzzer, for `make fuzz`.
# usage: tests/fuzz/run.sh check COMPILER                  whether the compiler has the fuzzer's runtime
#        tests/fuzz/run.sh run FOLDER MINUTES NAME...       runs FOLDER/fuzz_NAME on the inputs kept for NAME, each for its share of the time
#        tests/fuzz/run.sh keep NAME FILE...                adds the files to the inputs kept for NAME, named by the first digits of their SHA-1
# Kept inputs are tests/fuzz/corpus/NAME.tar.gz. New inputs that reach new code go to FOLDER/corpus/NAME; an input that crashes the target goes to FOLDER/crash-NAME-..., and the exit status is 1.
set -u
export LC_ALL=C

check() {
    probe=$(mktemp) || exit 1
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }' |
        "$1" -fsanitize=fuzzer -x c - -o "$probe" >/dev/null 2>&1
    status=$?
    rm -f "$probe"
    [ "$status" -eq 0 ] && return 0
    echo "make fuzz needs clang with its fuzzer runtime, which $1 lacks; install clang (Debian: apt-get install clang), or name one: make fuzz FUZZ_CC=..." >&2
    return 1
}

# Unpacks the kept inputs into a folder, after removing its contents.
unpack() { # name, folder
    rm -rf "$2"
    mkdir -p "$2" && tar -xzf "tests/fuzz/corpus/$1.tar.gz" -C "$2"
}

# The same files give the same bytes.
keep() { # name, files
    name=$1 folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
    shift
    if [ ! -e "tests/fuzz/targets/$name.c" ]; then
        echo "tests/fuzz/targets has no $name.c" >&2
        exit 1
    fi
    mkdir "$folder/kept" && { [ ! -e "tests/fuzz/corpus/$name.tar.gz" ] || unpack "$name" "$folder/kept"; } || exit 1
    for file in "$@"; do
        cp -- "$file" "$folder/kept/$(sha1sum <"$file" | cut -c 1-12)" || exit 1
    done
    find "$folder/kept" -type f -printf '%P\n' | sort | tar -C "$folder/kept" --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner \
        --mode=644 --verbatim-files-from -T - -cf "$folder/tar" && gzip -9n "$folder/tar" || exit 1
    cp "$folder/tar.gz" "tests/fuzz/corpus/$name.tar.gz" || exit 1
    echo "tests/fuzz/corpus/$name.tar.gz: $(find "$folder/kept" -type f | wc -l) inputs"
}

# Runs one target, and prints a line of results, and after a crash the path of its input.
run_one() { # folder, name, seconds
    found=$1/corpus/$2 kept=$1/kept/$2 log=$1/log-$2
    mkdir -p "$found" "$1/tmp"
    unpack "$2" "$kept" || return 1
    TMPDIR=$1/tmp "$1/fuzz_$2" -max_total_time="$3" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -max_len=4096 \
        -artifact_prefix="$1/crash-$2-" "$found" "$kept" >"$log" 2>&1
    status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    printf '  %-16s %10s executions in %s s, %s edges covered, %s inputs kept\n' "$2" "${executions:-no}" "$3" "${coverage:-no}" \
        "$(find "$found" "$kept" -type f | wc -l)"
    [ "$status" -eq 0 ] && return 0
    reproducer=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "fuzz_$2 failed: $(grep -m 1 -E 'ERROR|runtime error|a promise is broken' "$log")" >&2
    echo "  again with: $1/fuzz_$2 ${reproducer:-(no reproducer; see $log)}" >&2
    return 1
}

run() { # folder, minutes, names
    folder=$1 minutes=$2
    shift 2
    seconds=$(awk -v minutes="$minutes" -v count=$# 'BEGIN { s = int(minutes * 60 / count); print (s > 1 ? s : 1) }')
    failed=0
    for name in "$@"; do run_one "$folder" "$name" "$seconds" || failed=1; done
    rm -rf "$folder/tmp"
    return "$failed"
}

command=$1
shift
"$command" "$@"
