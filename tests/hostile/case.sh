# The parts of a case of tests/hostile: random numbers, programs that are run under a deadline, checks of their results,
# and the check that nothing is left. Sourced by hostile.sh.

deadline=60 # seconds; a program that takes longer hangs

# --- random numbers: a case's are its own, so that it can be repeated alone -------------------------------------------

draw() { # sets $drawn to one of 0 .. $1-1, $1 up to 2^30
    random_state=$(((random_state * 1103515245 + 12345) % 2147483648))
    drawn=$((random_state / 65536))
    random_state=$(((random_state * 1103515245 + 12345) % 2147483648))
    drawn=$(((drawn * 32768 + random_state / 65536) % $1))
}

choose() { # sets $chosen to one of the arguments
    draw $#
    shift "$drawn"
    chosen=$1
}

pause() { # up to $1 milliseconds
    draw $(($1 + 1))
    sleep "$((drawn / 1000)).$(printf %03d $((drawn % 1000)))"
}

draw_port() { draw 9000 && port=$((10000 + drawn)); } # below those that the system and other launchers assign

# --- a case -----------------------------------------------------------------------------------------------------------

begin_case() { # area, its number, case
    area=$1 case=$3 mark=$$-$1-$3 failed_cases=0 again="HOSTILE_SEED=$seed tests/hostile/hostile.sh $build $1 $3"
    work=$folder/$1-$3 out=$folder/$1-$3/.out err=$folder/$1-$3/.err commands=$folder/$1-$3/.commands
    random_state=$(((seed * 7919 + $2 * 104729 + $3 * 1299709) & 0x7fffffff))
    for turn in 1 2 3; do # so that neighbouring cases are unrelated
        random_state=$((((random_state ^ (random_state >> 15)) * 0x2c1b3c6d) & 0x7fffffff))
        random_state=$((((random_state ^ (random_state >> 12)) * 0x297a2d39) & 0x7fffffff))
    done
    mkdir -p "$work" && : >"$commands"
    shared_before=$(shared_names)
}

finish_case() {
    expect_nothing_left
    end_case
    [ $failed_cases -gt 0 ] || rm -rf "$work"
}

# One failure per case is counted; the first is reported.
fail() {
    [ $failed_cases -eq 0 ] || return 0
    failed_cases=1
    {
        echo "${area:+$area }$case: $*"
        echo "  again: $again"
        sed 's/^/  ran: /' "$commands" | tail -n 6
        [ ! -s "$err" ] || head -c 600 "$err" | tr -c '\n -~' '?' | sed -n '1,3s/^/  said: /p'
    } >>"$folder/failures.txt"
}

# Unmounts what an area has mounted; areas set $mounted.
mounted=''
clean_up() {
    [ -z "$mounted" ] || umount "$mounted" 2>/dev/null
    mounted=''
}

# --- programs -----------------------------------------------------------------------------------------------------------

quoted() { # one word for a shell
    case $1 in
    '' | *[!A-Za-z0-9_./:,=+@%-]*) printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g" | cut -c -200)" ;;
    *) printf '%s ' "$1" ;;
    esac
}

note_command() {
    for word in "$@"; do quoted "$word"; done >>"$commands"
    echo >>"$commands"
}

# Runs a command to its end; sets $status, and writes its output to the files $out and $err.
run() {
    note_command "$@"
    HOSTILE_MARK=$mark timeout --foreground -k 5 $deadline "$@" >"$out" 2>"$err" </dev/null
    status=$?
    judge_end "$1"
}

# No program may hang or be ended by a signal; the case checks the rest.
judge_end() {
    [ $status -ne 124 ] || fail "$1 was still running after $deadline s"
    [ $status -le 128 ] || fail "$1 ended by signal $((status - 128))"
}

# Starts a command in the background; $started is its process. Its output goes to $out.NAME and $err.NAME.
start() { # name, command...
    name=$1
    shift
    note_command "$@"
    HOSTILE_MARK=$mark "$@" >"$out.$name" 2>"$err.$name" </dev/null &
    started=$!
}

is_running() { # a zombie is not
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    case $line in *') Z '* | *') X '*) return 1 ;; esac
}

await_end() { # process, name [seconds]; sets $status
    ticks=$((${3:-$deadline} * 50))
    while is_running "$1"; do
        ticks=$((ticks - 1))
        [ $ticks -gt 0 ] || { fail "$2 was still running after ${3:-$deadline} s"; kill -KILL "$1"; break; }
        sleep 0.02
    done
    wait "$1" 2>/dev/null
    status=$?
}

# Processes that this case has started and that still run, found by their environment.
list_left() { grep -lszx "HOSTILE_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }

end_case() { # nothing of a case outlives it
    [ -n "${mark:-}" ] || return 0
    left=$(list_left)
    # shellcheck disable=SC2086 # a list
    [ -z "$left" ] || kill -KILL $left 2>/dev/null
}

# --- checks -------------------------------------------------------------------------------------------------------------

shared_names() { ls /dev/shm 2>/dev/null | grep -iE '^(lockstep|ls_|ddp)' | tr '\n' ' '; }

# Processes may need a moment to end after their launcher.
expect_nothing_left() {
    ticks=100
    while left=$(list_left) && [ -n "$left" ] && [ $ticks -gt 0 ]; do
        ticks=$((ticks - 1))
        sleep 0.1
    done
    for process in $left; do
        { read -r name <"/proc/$process/comm"; } 2>/dev/null || continue
        fail "a process is left: $name"
    done
    [ "$(shared_names)" = "$shared_before" ] || fail "shared memory is left: $(shared_names)"
    temporary=$(find "$work" -name '.*.tmp' 2>/dev/null | head -n 1)
    [ -z "$temporary" ] || fail "a temporary file is left: $temporary"
}

expect_status() { # statuses that are allowed
    for good_status in "$@"; do [ "$status" -ne "$good_status" ] || return 0; done
    fail "the status is $status, and not $*"
}

# Exactly one line, the error.
expect_one_line() { # [file]
    [ "$(wc -l <"${1:-$err}")" -eq 1 ] && grep -q 'error: ..' "${1:-$err}" || fail "not one line of error: $(wc -l <"${1:-$err}") lines"
}

# Each of several differences has a line; before a launcher's last line are those of the ranks that failed.
expect_error_lines() { grep -q . "$1" && ! grep -v '^ddp[a-z_]*: rank [0-9]* (pid [0-9]*) failed ' "$1" | grep -qv "error: .." || fail "it says something else than errors: $(head -n 1 "$1")"; }

expect_text() { grep -qF -- "$1" "${2:-$err}" || fail "it does not say '$1': $(head -c 300 "${2:-$err}" | head -n 1)"; }

hash_of() { sed -n 's/.* weights \([0-9a-f]\{16\}\).*/\1/p' "$1"; }

expect_hash() { # hash [file]
    [ -n "$1" ] && [ "$(hash_of "${2:-$out}")" = "$1" ] || fail "the weights' hash is '$(hash_of "${2:-$out}")', and not '$1'"
}

# --- training -----------------------------------------------------------------------------------------------------------

# A small training with a few steps; $training is a list of words.
training="--data=$tree/data/digits --model=mlp:784,32,10 --batch-size=60 --no-evaluate --quiet --device-kind=cpu"

# Starts a rank without a launcher, in the background: rank, ranks, port, words of the environment and options
start_rank() {
    rank=$1 ranks=$2 at=$3
    shift 3
    start "$rank" env RANK="$rank" WORLD_SIZE="$ranks" LOCAL_RANK="$rank" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 \
        MASTER_PORT="$at" "$@"
    eval "rank_$rank=$started"
}

await_rank() { # rank
    eval "await_end \$rank_$1 'rank $1'"
    [ $status -le 128 ] || fail "rank $1 ended by signal $((status - 128))"
}
