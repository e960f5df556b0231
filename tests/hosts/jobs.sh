# Jobs over all hosts of a case, by each launcher. Sourced by hosts.sh.

port=29500
torchrun=${TORCHRUN:-$(command -v torchrun)}

# Each launcher's processes run in the background; $job is the list of their names, output goes to $out.NAME, $err.NAME.
launch() { # launcher, ranks on each host, options of ddp_train
    launcher=$1 each=$2
    shift 2
    ranks=$((host_count * each)) job=''
    case $launcher in
    mpirun) by_mpirun "$@" ;;
    *) for h in $hosts; do launch_on "$h" "$@"; done ;;
    esac
}

# One host's part of the job; `wrapped` may have words to put before the program.
launch_on() { # host, options of ddp_train
    at=$1
    shift
    case $launcher in
    ddprun | torchrun)
        # shellcheck disable=SC2046,SC2086 # lists
        start_part "host$at" $(on "$at") env LS_JOB_TOKEN="$mark" $(command_of $launcher) --nnodes="$host_count" --node-rank="$at" \
            --nproc-per-node="$each" --master-addr=host0 --master-port=$port ${launcher_options:-} "$build/ddp_train" "$@"
        ;;
    by_hand)
        for l in $(seq 0 $((each - 1))); do
            # shellcheck disable=SC2046,SC2086 # lists
            start_part "host$at-$l" $(on "$at") env LS_JOB_TOKEN="$mark" RANK=$((at * each + l)) WORLD_SIZE="$ranks" LOCAL_RANK="$l" \
                LOCAL_WORLD_SIZE="$each" MASTER_ADDR=host0 MASTER_PORT=$port ${settings:-} "${program:-$build/ddp_train}" "$@"
        done
        ;;
    esac
}

command_of() {
    case $1 in
    ddprun) echo "$build/ddprun" ;;
    torchrun) echo "$torchrun --no-python" ;;
    esac
}

# mpirun runs on the login host, as on a cluster; it starts its daemons through the agent.
by_mpirun() {
    for h in $hosts; do echo "host$h slots=$each"; done >"$work/hostfile"
    start_part mpirun env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LS_JOB_TOKEN="$mark" MASTER_ADDR=host0 MASTER_PORT=$port \
        TMPDIR=/run/tmp mpirun --mca plm_rsh_agent "$here/enter.sh --shell" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.0.0/24 \
        --bind-to none --hostfile "$work/hostfile" -n "$ranks" -x LS_JOB_TOKEN -x MASTER_ADDR -x MASTER_PORT \
        "$build/ddp_train" "$@"
}

start_part() { # name, command
    job="$job $1"
    start "$@"
    echo "$started" >"$out.$name.pid"
}

# Waits for all parts, or the named ones, for that many seconds, and checks their status.
await_job() { # seconds, statuses, [names]
    for part in ${3:-$job}; do
        await_end "$(cat "$out.$part.pid")" "$part" "$1"
        # shellcheck disable=SC2086 # a list
        expect_status_of "$part" $2
    done
}

expect_status_of() { # name, statuses
    for good_status in $2 ${3:-} ${4:-}; do [ "$status" -ne "$good_status" ] || return 0; done
    fail "$1 ended with status $status: $(grep -m 1 'error' "$err.$1" || head -n 1 "$err.$1")"
}

# Checks that the launcher is installed; if not, the case is reported as not run.
have() { # launcher
    case $1 in
    torchrun) [ -n "$torchrun" ] || { left_out='torchrun is not here (TORCHRUN= names one)'; return 1; } ;;
    mpirun) command -v mpirun >/dev/null || { left_out='mpirun is not here'; return 1; } ;;
    esac
}
