# SIGKILL to random ranks at random moments of a job with restarts (--max-restarts; torchrun's, if installed). The job
# succeeds, with the losses of all steps and the weights of an undisturbed job: so each epoch has used every sample
# once, in the same order. No other files, processes or shared memory are left.
what='ranks killed in jobs that restart; every loss as if nobody had'
least=24
killed=0

restarts_begin() {
    launchers='spawn ddprun shell'
    ! command -v torchrun >/dev/null || launchers="$launchers torchrun"
    notes=", no kill"
}

restarts_job() { # launcher, ranks, name of the files: runs `act` with the command
    by=$1 count=$2 name=$3
    files="--save=$work/$name --resume-if-present=$work/$name --dump-losses=$work/$name.losses --metrics=$work/$name.metrics"
    # shellcheck disable=SC2086 # lists
    set -- "$build/ddp_train" $training --steps=300 --save-every=3 $variant $files
    case $by in
    spawn) $act "$@" --spawn="$count" --max-restarts=20 ;;
    ddprun) $act "$build/ddprun" --nproc-per-node="$count" --max-restarts=20 "$@" ;;
    shell) $act "$build/ddprun" --nproc-per-node="$count" --max-restarts=20 --log-dir="$work/logs" --redirects=2 sh -c '"$@"; exit $?' sh "$@" ;;
    torchrun) $act torchrun --standalone --nproc-per-node="$count" --max-restarts=20 --no-python "$@" ;;
    esac
}

start_job() { start job "$@"; }

# The process of a rank, or of the shell that runs it, and not the launcher's guard; '' if there is none at the moment.
pick_rank() { # process of the launcher
    found=''
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        ! grep -qsz '^RANK=' "/proc/$child/environ" || found="$found $child"
    done
    victim=''
    # shellcheck disable=SC2086 # a list
    [ -z "$found" ] || { choose $found && victim=$chosen; }
}

restarts_case() {
    # shellcheck disable=SC2086 # a list
    choose $launchers
    launcher=$chosen
    choose 2 2 3 4
    ranks=$chosen
    choose '' '' --shard-state=1 --accumulate=2 --compress=topk:0.1 --workers=2 '--optimizer=sgd --momentum=0.9'
    variant=$chosen
    act=run restarts_job spawn "$ranks" whole
    expect_status 0
    act=start_job restarts_job "$launcher" "$ranks" again
    job=$started
    draw 10
    for kill in $(seq 0 "$drawn"); do
        pause 350
        pick_rank "$job"
        [ -n "$victim" ] && kill -KILL "$victim" 2>/dev/null && killed=$((killed + 1))
    done
    notes=", $killed kills"
    await_end "$job" "the job under $launcher, of which ranks were killed"
    expect_status 0
    for suffix in '' .losses; do
        cmp -s "$work/whole$suffix" "$work/again$suffix" || fail "again$suffix differs after $drawn kills under $launcher: $(wc -l <"$work/again$suffix") lines"
    done
    [ "$(wc -l <"$work/again.metrics")" -eq 301 ] || fail "the metrics have $(wc -l <"$work/again.metrics") lines, and not 301"
    rm -rf "$work/logs"
    [ "$(find "$work" -type f ! -name '.out*' ! -name '.err*' ! -name .commands | wc -l)" -eq 6 ] || fail "other files than the job's: $(ls -A "$work")"
}
