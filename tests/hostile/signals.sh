# SIGINT, SIGTERM and SIGHUP at random moments, to the launchers and to the benches, some of which run other programs: they
# must end within the promised two seconds, ten on a busy machine, and leave nothing. SIGKILL to a launcher also ends its
# ranks.
what='signals at random moments end programs and their children; a stopped rank is named'
least=12
endless='--steps=100000000'

# A shell makes background processes ignore SIGINT, and nohup SIGHUP: these targets must ignore neither.
signals_begin() {
    heard=''
    ! env --default-signal=INT,HUP true 2>/dev/null || heard=--default-signal=INT,HUP
    [ -n "$heard" ] || notes=", without SIGINT and SIGHUP, which this env cannot restore"
}

# shellcheck disable=SC2086 # one word, or none
start_job() { start job env $heard TMPDIR="$work/tmp" "$@"; }

start_target() { # starts a program that has children or threads, and does not end by itself
    mkdir "$work/tmp"
    choose dp ddp ddprun shell bench comm tables recipes calibrate
    target=$chosen
    case $target in
    dp) set -- "$build/dp_train" --devices=2 ;;
    ddp) set -- "$build/ddp_train" --spawn=2 ;;
    ddprun) set -- "$build/ddprun" --nproc-per-node=2 "$build/ddp_train" ;;
    shell) set -- "$build/ddprun" --nproc-per-node=2 sh -c '"$@"; true' sh "$build/ddp_train" ;;
    esac
    # shellcheck disable=SC2086 # a list
    case $target in
    bench) start_job "$build/bench_dp_vs_ddp" --models=mlp --n=1,2 --quiet --steps=2000 --out="$work" ;;
    comm) start_job "$build/bench_comm" --n=2,4 --quiet --out="$work" ;;
    tables) start_job "$tree/labs/bench/shared/stoppable.sh" "$build/tables" --tables=1,6 --out="$work" ;;
    recipes) DATA="$tree/data/digits" start_job "$tree/labs/bench/recipes/recipes.sh" "$build" "$work" mlp-amp ;;
    calibrate) start_job "$build/calibrate" --out="$work/node.json" ;;
    *) start_job "$@" $training $endless --save="$work/checkpoint" --save-every=20 ;;
    esac
    job=$started
}

# One rank is stopped at a random moment: the others name it at their deadline, and the launcher ends it.
stopped_rank() {
    choose ddp ddprun
    case $chosen in
    ddp) set -- "$build/ddp_train" --spawn=3 ;;
    ddprun) set -- "$build/ddprun" --nproc-per-node=3 --grace=1 "$build/ddp_train" ;;
    esac
    # shellcheck disable=SC2086 # lists
    start job "$@" $training $endless --timeout=4 --save="$work/checkpoint" --save-every=20
    job=$started rank='' ticks=500
    draw 3
    while [ -z "$rank" ] && [ $ticks -gt 0 ]; do
        rank=$(grep -lszx "RANK=$drawn" $(sed 's#[0-9]*#/proc/&/environ#g' "/proc/$job/task/$job/children") | cut -d/ -f3)
        ticks=$((ticks - 1))
        sleep 0.01
    done
    wanted=$drawn
    pause 800
    kill -STOP "$rank" || { fail 'no rank could be stopped'; return; }
    await_end "$job" 'a job with a stopped rank' 45
    expect_status 3
    grep -qE "rank $wanted (of 3 )?did not .*within 4 s" "$err.job" || fail "rank $wanted is not named: $(head -n 1 "$err.job")"
    [ "$(grep -c ': error: ' "$err.job")" -le 3 ] || fail 'more than three errors'
}

signals_case() {
    draw 4
    [ "$drawn" -gt 0 ] || { stopped_rank; return; }
    start_target
    pause 1500
    is_running "$job" || { wait "$job"; status=$?; [ $status -eq 0 ] || fail "$target ended by itself with $status"; return; }
    choose ${heard:+INT HUP} TERM
    signal=$chosen
    case $target in dp | ddp | ddprun | shell) draw 3 && [ "$drawn" -gt 0 ] || signal=KILL ;; esac
    kill -$signal "$job" 2>/dev/null
    await_end "$job" "$target after SIG$signal" 10
    [ $status -ne 0 ] || fail "the status of $target after SIG$signal is 0"
    [ -z "$(ls "$work/tmp")" ] || fail "left by $target: $(ls "$work/tmp")"
}
