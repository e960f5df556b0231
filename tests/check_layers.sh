#!/bin/sh
# Checks the tree's three rules over every C file that git knows (tracked, or new and not ignored):
#   1. includes only point down: base < trace < device < kernels < comm < nn < data < optim < seam < checkpoint < report < train <
#      dp_threads | ddp_procs/launch < ddp_procs < labs, written with their full path; from device to optim nothing includes trace, whose probes
#      are in base; labs/replay/engine sees base and trace only; the two modes never include each other;
#   2. a name tells its room: external functions and variables of common/ and kernels/ begin with ls_, of the modes with dp_ and ddp_;
#   3. a program notices that its results could not be written: each main ends with ls_results_written (common/base/results.h), but for
#      those that print no results (ddprun), know nothing of common/ (bench_mpi) or are a lab's probe (probe_main says it).
# usage: tests/check_layers.sh [FOLDER]          checks
#        tests/check_layers.sh --self-test       plants violations in a copy and fails unless each is found
set -u
cd "${LS_ROOT:-$(dirname "$0")/..}" || exit 1

check() {
    git ls-files -co --exclude-standard -- '*.c' '*.h' '*.def' '*.cu' '*.cuh' | while read -r file; do
        [ -f "$file" ] && grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file"
    done | awk -F: '
        function level(path) {
            if (path ~ /^common\/base\//) return 1
            if (path ~ /^common\/trace\//) return 1.5
            if (path ~ /^common\/device\//) return 2
            if (path ~ /^kernels\//) return 3
            if (path ~ /^common\/comm\//) return 4
            if (path ~ /^common\/nn\//) return 5
            if (path ~ /^common\/data\//) return 6
            if (path ~ /^common\/optim\//) return 7
            if (path ~ /^common\/seam\//) return 8
            if (path ~ /^common\/checkpoint\//) return 9
            if (path ~ /^common\/report\//) return 10
            if (path ~ /^common\/train\//) return 11
            if (path ~ /^ddp_procs\/launch\//) return 11.5
            if (path ~ /^dp_threads\//) return 12
            if (path ~ /^ddp_procs\//) return 12
            if (path ~ /^labs\//) return 13
            if (path ~ /^tests\//) return 14
            return 0
        }
        function room(path) { split(path, part, "/"); return part[1] }
        {
            file = $1; included = $0; sub(/^[^"]*"/, "", included); sub(/".*/, "", included)
            from = level(file); to = level(included)
            why = ""
            if (from == 0) why = "this file lies in no known room"
            else if (to == 0) why = "write the include with its full path from the root"
            else if (to > from) why = "includes only point down"
            else if (from >= 2 && from < 8 && to == 1.5) why = "traces are for common/seam and above"
            else if (file ~ /^labs\/replay\/engine\// && included !~ /^(common\/(base|trace)|labs\/replay\/engine)\//) why = "the engine of replays sees base and trace only"
            else if (from > 11 && from <= 12 && to > 11 && to <= 12 && room(file) != room(included)) why = "the modes never include each other"
            if (why != "") { printf "%s:%s: #include \"%s\": %s\n", file, $2, included, why; bad++ }
            seen++
        }
        END { if (bad) exit 1; if (!seen) { print "no includes found: nothing was checked"; exit 1 } printf "layers: %d includes point down\n", seen }'
}

# External names as the sources define them: a function or a variable that begins in column 0 and is neither static nor only declared. A
# definition may go on over several lines, up to its "{", ";" or "=".
names() {
    git ls-files -co --exclude-standard -- '*.c' | grep -E '^(common|kernels|dp_threads|ddp_procs)/' | while read -r file; do
        case $file in
        common/* | kernels/*) prefix='^(ls_|LS_CPU)' ;;
        dp_threads/*) prefix='^(dp_|main$)' ;;
        *) prefix='^(ddp_|main$)' ;;
        esac
        [ -f "$file" ] && awk -v file="$file" -v prefix="$prefix" '
            function judge(text, name) {
                if (text ~ /^(static|typedef|extern|_Static_assert|#|struct [A-Za-z_]+ *[{;]|enum [A-Za-z_]* *[{;]|union )/) return
                name = text; sub(/[ ]*[([=;{].*/, "", name); sub(/.*[ *]/, "", name)
                if (text ~ /\) *;/ || name !~ /^[A-Za-z_][A-Za-z0-9_]*$/ || name ~ prefix) return
                printf "%s:%d: the external name %s belongs to another room\n", file, start, name
            }
            !open && /^[a-z_][A-Za-z0-9_]*[ *]/ { open = 1; start = NR; text = "" }
            open { text = text $0 " "; if ($0 ~ /[{;=]/) { judge(text); open = 0 } }' "$file"
    done
}

mains() {
    git ls-files -co --exclude-standard -- '*.c' | grep -vE '^(tests/|ddp_procs/launch/ddprun.c|labs/bench/peers/|labs/[0-9])' | while read -r file; do
        grep -q '^int main(' "$file" || continue
        grep -q 'return ls_status_exit_code(ls_results_written(' "$file" || echo "$file: main does not say ls_results_written"
    done
}

run() {
    check || return 1
    wrong=$(names; mains)
    [ -z "$wrong" ] && echo 'names: external names tell their room; mains check their results' && return 0
    echo "$wrong"
    return 1
}

# Each planted line must turn the check red.
self_test() {
    copy=$(mktemp -d) || exit 1
    trap 'rm -rf "$copy"' EXIT
    git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$copy" 2>/dev/null
    (cd "$copy" && git init -q .) || exit 1
    LS_ROOT=$copy "$copy/tests/check_layers.sh" >/dev/null || { echo 'self-test: the copy itself is not clean'; exit 1; }
    missed=0
    plant() { # folder, line
        mkdir -p "$copy/$1" && printf '%s\n' "$2" >"$copy/$1/planted.c"
        if LS_ROOT=$copy "$copy/tests/check_layers.sh" >/dev/null; then echo "self-test: not found: $1: $2"; missed=1; fi
        rm "$copy/$1/planted.c"
    }
    plant common/base '#include "common/device/device.h"'
    plant common/nn/deeper/still '#include "common/train/loop.h"'
    plant kernels/cpu '#  include "dp_threads/dp.h"'
    plant dp_threads '#include "ddp_procs/ddp.h"'
    plant ddp_procs '#include "dp_threads/dp.h"'
    plant common/device '#include "common/trace/trace.h"'
    plant common/trace '#include "labs/replay/engine/node.h"'
    plant common/optim '#include "common/trace/trace.h"'
    plant common/optim '#include "common/seam/options.h"'
    plant common/seam '#include "common/checkpoint/weights.h"'
    plant common/checkpoint '#include "common/report/report.h"'
    plant common/report '#include "common/train/feed.h"'
    plant common/train '#include "dp_threads/dp.h"'
    plant ddp_procs/launch '#include "ddp_procs/reducer.h"'
    plant ddp_procs/launch '#include "dp_threads/dp.h"'
    plant dp_threads '#include "ddp_procs/launch/rank.h"'
    plant labs/replay/engine '#include "common/device/device.h"'
    plant common/train '#include "loop.h"'
    plant common/data 'int dp_wrong(void) {'
    plant ddp_procs 'void *ls_wrong(int a) {'
    plant common/data 'int wrong(int a,
          int b) {'
    plant kernels 'const int wrong_table[] = {1};'
    plant labs/replay/calibrate 'int main(void) { return 0; }'
    [ "$missed" -eq 0 ] && echo 'self-test: all 23 planted violations were found'
    return "$missed"
}

if [ "${1:-}" = --self-test ]; then self_test; else run; fi
