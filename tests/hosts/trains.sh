# Jobs that succeed: on several hosts they have the bits of one host. Sourced by hosts.sh.

# Sums in rank order, whatever the network; a batch that 2, 4 and 8 ranks share evenly.
exact="$(echo "$training" | sed 's/--batch-size=60/--batch-size=64/') --allreduce=naive"

train_on_one_host() { # ranks, options; leaves $work/one.{weights,losses}
    # shellcheck disable=SC2086 # a list
    run "$build/ddp_train" --spawn="$1" $exact --save-weights="$work/one.weights" --dump-losses="$work/one.losses" $2
    expect_status 0
}

expect_same() { # compares the files of one host and of several
    cmp -s "$work/one.weights" "$work/all.weights" || fail 'the weights are not those of one host'
    cmp -s "$work/one.losses" "$work/all.losses" || fail 'the losses are not those of one host'
}

same_bits() { # launcher, ranks on each host, options of ddp_train
    have "$1" || return 0
    how=$1 each=$2
    shift 2
    train_on_one_host $((host_count * each)) "--steps=20 $*"
    # shellcheck disable=SC2086 # a list
    launch "$how" "$each" $exact --timeout=20 --steps=20 --save-weights="$work/all.weights" --dump-losses="$work/all.losses" "$@"
    await_job 60 0
    expect_same
}

# A checkpoint, written once in a folder that all hosts share, is read by all: resumed, and saved again.
resumes() { # launcher, ranks on each host, options of ddp_train
    how=$1 each=$2
    shift 2
    train_on_one_host $((host_count * each)) "--steps=20 $*"
    for steps in 10 20; do
        # shellcheck disable=SC2086 # a list
        launch "$how" "$each" $exact --timeout=20 --steps=$steps --resume-if-present="$work/checkpoint" --save="$work/checkpoint" \
            --save-weights="$work/all.weights" --dump-losses="$work/all.losses" "$@"
        await_job 60 0
    done
    expect_same
}

# The link's rate changes during the run: it takes longer, with the same result.
slowed() { # rate, steps
    train_on_one_host "$host_count" "--steps=$2"
    # shellcheck disable=SC2086 # a list
    launch ddprun 1 $exact --timeout=20 --steps="$2" --save-weights="$work/all.weights" --dump-losses="$work/all.losses" --metrics="$work/metrics"
    await_steps 5
    slow "$1"
    await_job 90 0
    expect_same
}

# GPUs and NCCL of tests/cuda_on_cpu, whose ranks find each other by process ids: so the hosts share those.
on_gpus() { # function and its arguments
    fakes=$build/tests/cuda_on_cpu
    [ -r "$fakes/ls_nccl.so" ] || { left_out='tests/cuda_on_cpu is not built'; return; }
    remove_hosts
    own_pids=' '
    make_hosts "$host_count" || fail 'the hosts could not be made'
    own_pids='' cpus=$exact
    exact=$(echo "$exact" | sed 's/ --device-kind=cpu//; s/ --allreduce=naive//')
    export LS_PLUGINS="$fakes" CUDA_ON_CPU_DEVICES=4
    "$@"
    exact=$cpus
    unset LS_PLUGINS CUDA_ON_CPU_DEVICES
}

impaired() { # words of netem
    impair "$*" && same_bits ddprun 1
}

some_run() {
    for part in $job; do ! is_running "$(cat "$out.$part.pid")" || return 0; done
    return 1
}

await_steps() { # number of lines of metrics
    ticks=1500
    while [ "$({ wc -l <"$work/metrics"; } 2>/dev/null || echo 0)" -lt "$1" ]; do
        ticks=$((ticks - 1))
        [ $ticks -gt 0 ] && some_run || { fail "no step $1 in 30 s: $(cat "$err".* | grep -m 1 error)"; return 1; }
        sleep 0.02
    done
}
