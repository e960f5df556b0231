# SIGKILL at random moments while checkpoints are written, of a launcher or of one rank; the job is restarted with the
# same command until it is done. It has the weights of an undisturbed job, and nothing else is left.
what='killed while saving; resumed to the same weights'
least=12

kinds='dp_train ddp_train ddprun'

kill_command() { # kind, checkpoint: runs `act` with the command
    checkpoint=$2
    case $1 in
    dp_train) set -- "$build/dp_train" --devices=2 ;;
    ddp_train) set -- "$build/ddp_train" --spawn=2 ;;
    ddprun) set -- "$build/ddprun" --nproc-per-node=2 "$build/ddp_train" ;;
    esac
    # shellcheck disable=SC2086 # a list
    $act "$@" $training --steps=150 --save-every=1 --save="$checkpoint" --resume-if-present="$checkpoint"
}

kills_begin() {
    for kind in $kinds; do
        act=run kill_command $kind "$work/$kind"
        expect_status 0
        eval "expected_$kind=\$(hash_of \"\$out\")"
    done
}

start_job() { start job "$@"; }

# The launcher, or with ddprun and --spawn also one of its children.
pick_victim() { # process of the launcher
    victim=$1
    draw 2
    [ "$drawn" -eq 0 ] && return
    children=''
    { read -r children <"/proc/$1/task/$1/children"; } 2>/dev/null # it has no final newline
    # shellcheck disable=SC2086 # a list
    [ -z "$children" ] || { choose $children && victim=$chosen; }
}

kills_case() {
    # shellcheck disable=SC2086 # a list
    choose $kinds
    kind=$chosen
    draw 4
    for times in $(seq 0 "$drawn"); do
        act=start_job kill_command "$kind" "$work/checkpoint"
        pause 900
        pick_victim "$started"
        kill -KILL "$victim" 2>/dev/null
        await_end "$started" "the killed $kind" 20
        await_none_left
    done
    act=run kill_command "$kind" "$work/checkpoint"
    expect_status 0
    eval "expect_hash \"\$expected_$kind\""
    [ "$(find "$work" -type f ! -name '.out*' ! -name '.err*' ! -name .commands | wc -l)" -eq 1 ] || fail "other files than the checkpoint: $(ls -A "$work")"
}

# The next start waits until the processes that survived the kill have ended.
await_none_left() {
    ticks=100
    while [ -n "$(list_left)" ] && [ $ticks -gt 0 ]; do
        ticks=$((ticks - 1))
        sleep 0.1
    done
    [ $ticks -gt 0 ] || fail 'processes are left after a kill'
}
