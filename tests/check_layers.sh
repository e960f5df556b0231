#!/bin/sh
# Checks the tree's five rules over every C file that git lists (tracked, or new and not ignored):
#   1. includes only point down: base < trace < device < kernels < comm < nn < data < optim < seam < checkpoint < report
#      < train < dp_threads | ddp_procs/launch < ddp_procs < library | labs, written with their full path; from device
#      to optim no file includes trace, whose probes are in base; labs/replay/engine includes base and trace only; the
#      two modes never include each other;
#   2. a name shows its room: external functions and variables of common/ and kernels/ begin with ls_, of the modes with
#      dp_ and ddp_;
#   3. a program detects that its results could not be written: each main ends with ls_results_written
#      (common/base/results.h), except programs that print no results (ddprun), do not use common/ (bench_mpi, ls_pmix,
#      examples) or are a lab's probe (probe_main does it).
#   4. no circles inside a room, except those that are listed with their reason.
#   5. deadlines and durations do not use the date, which may jump: files that print it are listed.
# usage: tests/check_layers.sh [FOLDER]          checks
#        tests/check_layers.sh --self-test       plants violations in a copy and fails unless each is found
set -u
cd "${LS_ROOT:-$(dirname "$0")/..}" || exit 1

check() {
    git ls-files -coz --exclude-standard -- '*.c' '*.h' '*.def' '*.cu' '*.cuh' |
        xargs -0 grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' 2>/dev/null | awk -F: '
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
            if (path ~ /^library\//) return 12.5
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

# External names as the sources define them: a function or a variable that begins in column 0 and is neither static nor
# only declared. A definition may span several lines, up to its "{", ";" or "=".
names() {
    git ls-files -co --exclude-standard -- '*.c' | grep -E '^(common|kernels|dp_threads|ddp_procs|library)/' | while read -r file; do
        case $file in
        common/comm/mpi/ls_pmix.c) prefix='^main$' ;; # a program
        common/* | kernels/* | library/*) prefix='^(ls_|LS_CPU)' ;;
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

# Circles inside a room. A unit is a .c file with the headers of its name (_internal or not); it depends on another if
# one of its files includes the other's header. Units that depend on each other, directly or through others, are a
# circle, unless they are listed here, each list with its reason.
known_circles='
common/checkpoint/checkpoint common/checkpoint/checkpoint_text      # what a checkpoint says is written and read by rows of one table
common/comm/allreduce common/comm/carrier common/comm/comm common/comm/regions common/comm/segment common/comm/wait # a group is its memory, its waits, its algorithms and what carries their data
common/device/device common/device/host_lock common/device/plugin   # a device opens its plug-in and takes the lock, both of which know devices
ddp_procs/ddp ddp_procs/distributed                                 # ddp.h is the private header of the room
ddp_procs/launch/store ddp_procs/launch/store_enter ddp_procs/launch/store_protocol # one client, and its first message
dp_threads/data_parallel dp_threads/dp                              # dp.h is the private header of the room
kernels/cpu/cpu kernels/kernels                                     # a call goes to the table of the CPU kernels, whose type kernels.h has
kernels/cuda/batchnorm kernels/cuda/batchnorm_slices              # one module: the slices of a channel, and the kernels that walk them
labs/replay/engine/workload labs/replay/engine/workload_layers labs/replay/engine/workload_parts # one module: a workload from a file
'
circles() {
    { printf '%s\n' "$known_circles" | sed 's/ *#.*//; s/^/known /'; git ls-files -coz --exclude-standard -- '*.c' '*.h' '*.def' '*.cu' '*.cuh' |
        xargs -0 grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' 2>/dev/null | sed -nE '/^tests\//!s#^([^:]*):[^"]*"([^"]*)".*#\1 \2#p'
    } | awk '
        function unit(path) { sub(/\.(c|h|def|cu|cuh)$/, "", path); sub(/_internal$/, "", path); return path }
        function room(path) { # kernels and each room of labs have their subfolders; ddp_procs/launch is a room of its own
            if (path ~ /^kernels\//) return "kernels"
            if (match(path, /^labs\/[^\/]*\//)) return substr(path, 1, RLENGTH)
            sub(/\/[^\/]*$/, "", path); return path
        }
        function visit(from, at, i, parts, next_unit) { # marks what `from` leans on
            parts = split(edges[at], next_unit, " ")
            for (i = 1; i <= parts; i++)
                if (!((from, next_unit[i]) in leans)) { leans[from, next_unit[i]] = 1; visit(from, next_unit[i]) }
        }
        $1 == "known" { for (i = 2; i <= NF; i++) circle_of[$i] = NR; next }
        {
            a = unit($1); b = unit($2)
            if (a == b || room(a) != room(b) || ((a, b) in seen)) next
            seen[a, b] = 1; edges[a] = edges[a] " " b; units[a] = 1
        }
        END {
            for (a in units) visit(a, a)
            for (pair in leans) {
                split(pair, two, SUBSEP); a = two[1]; b = two[2]
                if (a >= b || !((b, a) in leans)) continue
                found[a] = found[b] = 1
                if (circle_of[a] && circle_of[a] == circle_of[b]) continue
                printf "%s and %s lean on each other: move what both need, or say why in known_circles\n", a, b
            }
            for (a in circle_of) if (!(a in found)) printf "known_circles lists %s, which is in no circle: take it out\n", a
        }'
}

# Deadlines and durations use the monotonic clock (common/base/clock.h). The date, which people and NTP set, is only
# printed, in the files that are listed here, each with its reason.
known_dates='
labs/bench/shared/machine.c     # when a result was measured
ddp_procs/launch/launch_watch.c # when a rank ended, for the report
'
reads_date='CLOCK_REALTIME|[^_a-zA-Z]time\((NULL|0|&)|gettimeofday\(|timespec_get\(|_timed(wait|lock|rdlock|wrlock|join_np)\('
clocks() {
    { printf '%s\n' "$known_dates" | sed 's/ *#.*//; s/^/known /'
      git ls-files -coz --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs -0 grep -HnE "$reads_date" 2>/dev/null |
          sed 's#/\*.*##' | grep -E '^(common|kernels|dp_threads|ddp_procs|labs)/[^:]*:[0-9]*: *[^ *]' | grep -E "$reads_date"
    } | awk -F: '
        $1 ~ /^known ./ { known[substr($1, 7)] = 1; next }
        $1 in known { found[$1] = 1; next }
        NF > 1 { printf "%s:%s: the date is no clock: take ls_now_us, or list the file in known_dates\n", $1, $2 }
        END { for (file in known) if (!(file in found)) printf "known_dates lists %s, which does not read the date: take it out\n", file }'
}

mains() {
    git ls-files -co --exclude-standard -- '*.c' | grep -vE '^(tests/|examples/|ddp_procs/launch/ddprun.c|labs/bench/peers/|common/comm/mpi/ls_pmix.c|labs/[0-9])' | while read -r file; do
        grep -q '^int main(' "$file" || continue
        grep -q 'return ls_status_exit_code(ls_results_written(' "$file" || echo "$file: main does not say ls_results_written"
    done
}

run() {
    check || return 1
    wrong=$(names; mains; circles; clocks)
    [ -z "$wrong" ] && echo 'names: external names tell their room; mains check their results; no new circles; no deadline of the date' && return 0
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
    plant common/device 'static void wait(void) { pthread_cond_timedwait(&changed, &lock, &until); }'
    plant ddp_procs/launch 'static double now(void) { return (double)time(NULL); }'
    plant labs/replay/calibrate '    clock_gettime(CLOCK_REALTIME, &now);'
    printf '#include "common/base/clock.h"\n' >>"$copy/common/base/hash.h"
    printf '#include "common/base/hash.h"\n' >>"$copy/common/base/clock.h"
    if LS_ROOT=$copy "$copy/tests/check_layers.sh" >/dev/null; then echo 'self-test: not found: a circle'; missed=1; fi
    sed -i '$d' "$copy/common/base/clock.h"
    printf '#include "common/base/cores.h"\n' >>"$copy/common/base/clock.h"
    printf '#include "common/base/hash.h"\n' >>"$copy/common/base/cores.h"
    if LS_ROOT=$copy "$copy/tests/check_layers.sh" >/dev/null; then echo 'self-test: not found: a circle of three'; missed=1; fi
    sed -i '$d' "$copy/common/base/clock.h" "$copy/common/base/cores.h" "$copy/common/base/hash.h"
    printf '#include "labs/bench/comm/bench_comm.h"\n' >>"$copy/labs/bench/shared/columns.h"
    printf '#include "labs/bench/shared/columns.h"\n' >>"$copy/labs/bench/comm/bench_comm.h"
    if LS_ROOT=$copy "$copy/tests/check_layers.sh" | grep -q 'lean on each other'; then :; else echo 'self-test: not found: a circle over two folders'; missed=1; fi
    sed -i '$d' "$copy/labs/bench/shared/columns.h" "$copy/labs/bench/comm/bench_comm.h"
    LS_ROOT=$copy "$copy/tests/check_layers.sh" >/dev/null || { echo 'self-test: the copy is not clean after its circles'; missed=1; }
    sed -i 's#^dp_threads/data_parallel dp#dp_threads/reduce &#' "$copy/tests/check_layers.sh"
    if LS_ROOT=$copy "$copy/tests/check_layers.sh" >/dev/null; then echo 'self-test: not found: a circle that is listed and gone'; missed=1; fi
    sed -i 's#^labs/bench/shared/machine.c #common/base/hash.c #; s#^dp_threads/reduce ##' "$copy/tests/check_layers.sh"
    LS_ROOT=$copy "$copy/tests/check_layers.sh" | grep -q '^known_dates lists common/base/hash.c' || { echo 'self-test: not found: a date that is listed and gone'; missed=1; }
    [ "$missed" -eq 0 ] && echo 'self-test: all 31 planted violations were found'
    return "$missed"
}

if [ "${1:-}" = --self-test ]; then self_test; else run; fi
