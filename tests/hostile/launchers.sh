# Ranks as mpirun, mpiexec, srun and torchrun start them, by the environment that each sets (and by mpirun itself, if
# installed); two jobs on one port, neither of which accepts the other's ranks; copies under a launcher, which are
# refused.
what='as other launchers start ranks; two that contradict; two jobs on one port; copies refused'
least=10

launchers_begin() {
    for ranks in 2 3 4; do
        for s in 0 1; do
            # shellcheck disable=SC2086 # a list
            run "$build/ddp_train" --spawn=$ranks $training --steps=6 --seed=$s
            expect_status 0
            eval "hash_${ranks}_$s=\$(hash_of \"\$out\")"
        done
    done
}

# The environment of a rank of this launcher: sets $own.
environment_of() { # launcher, rank, ranks
    case $1 in
    openmpi) own="OMPI_COMM_WORLD_RANK=$2 OMPI_COMM_WORLD_LOCAL_RANK=$2 OMPI_COMM_WORLD_SIZE=$3 OMPI_COMM_WORLD_LOCAL_SIZE=$3 PMIX_NAMESPACE=$mark" ;;
    mpiexec) own="PMI_RANK=$2 PMI_SIZE=$3 MPI_LOCALRANKID=$2 MPI_LOCALNRANKS=$3" ;;
    srun) own="SLURM_PROCID=$2 SLURM_LOCALID=$2 SLURM_NTASKS=$3 SLURM_STEP_NUM_TASKS=$3 SLURM_STEP_TASKS_PER_NODE=$3 SLURM_JOB_ID=$mark SLURM_STEP_ID=0" ;;
    torchrun) own="RANK=$2 WORLD_SIZE=$3 LOCAL_RANK=$2 LOCAL_WORLD_SIZE=$3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=$mark TORCHELASTIC_USE_AGENT_STORE=True" ;;
    esac
}

as_a_launcher() {
    choose openmpi mpiexec srun torchrun
    launcher=$chosen
    choose 2 2 3 4
    ranks=$chosen
    draw_port
    # shellcheck disable=SC2046 # a list
    for r in $(seq 0 $((ranks - 1)) | awk -v turn="$drawn" 'BEGIN { srand(turn) } { print rand(), $1 }' | sort | cut -d' ' -f2); do
        environment_of "$launcher" "$r" "$ranks"
        # shellcheck disable=SC2086 # lists
        start "$r" env $own LS_JOB_TOKEN="$mark" "$build/ddp_train" $training --timeout=30 --steps=6
        eval "rank_$r=$started"
        pause 100
    done
    for r in $(seq 0 $((ranks - 1))); do
        await_rank "$r"
        expect_status 0
        [ ! -s "$err.$r" ] || fail "rank $r under $launcher: $(head -n 1 "$err.$r")"
        [ "$r" -eq 0 ] || [ ! -s "$out.$r" ] || fail "rank $r under $launcher prints results, too"
    done
    eval "expect_hash \"\$hash_${ranks}_0\" \"\$out.0\""
}

by_mpirun() {
    command -v mpirun >/dev/null || { as_a_launcher; return; }
    # shellcheck disable=SC2086 # a list
    run env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LS_JOB_TOKEN="$mark" mpirun --oversubscribe -n 2 "$build/ddp_train" $training --steps=6
    expect_status 0
    expect_hash "$hash_2_0"
}

# Jobs 0 and 1 with seeds 0 and 1, whose ranks start in any order: each rank ends with its own job's weights, or is
# refused.
two_jobs() {
    draw_port
    for turn in $(seq 0 3 | awk -v turn="$drawn" 'BEGIN { srand(turn) } { print rand(), $1 }' | sort | cut -d' ' -f2); do
        job=$((turn / 2)) r=$((turn % 2))
        # shellcheck disable=SC2086 # a list
        start $turn env RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port LS_JOB="$mark-$job" \
            LS_JOB_TOKEN="$mark" "$build/ddp_train" $training --timeout=15 --steps=6 --seed=$job
        eval "rank_$turn=$started"
        pause 30
    done
    done_jobs=0
    for job in 0 1; do
        await_rank $((2 * job + 1)) && other=$status
        await_rank $((2 * job))
        expect_status 0 1 2 3
        if [ "$status" -eq 0 ]; then
            done_jobs=$((done_jobs + 1))
            [ $other -eq 0 ] || fail "job $job: rank 0 is done, rank 1 ended with $other"
            eval "expect_hash \"\$hash_2_$job\" \"\$out.$((2 * job))\""
        else
            grep -q 'error: ' "$err.$((2 * job))" || fail "job $job's rank 0 ends with $status and says nothing"
            [ $other -ne 0 ] || fail "job $job: rank 1 is done without rank 0"
        fi
    done
    [ $done_jobs -gt 0 ] || fail "neither of two jobs on one port was done: $(head -n 1 "$err.0"); $(head -n 1 "$err.2")"
}

copies() {
    choose openmpi mpiexec srun torchrun
    draw_port
    environment_of "$chosen" 0 "$((2 + drawn % 3))"
    choose dp_train spawn ddprun
    case $chosen in
    dp_train) set -- "$build/dp_train" --devices=2 ;;
    spawn) set -- "$build/ddp_train" --spawn=2 ;;
    ddprun) set -- "$build/ddprun" --nproc-per-node=2 "$build/ddp_train" ;;
    esac
    # shellcheck disable=SC2086 # lists
    run env $own "$@" $training --steps=6 --save="$work/copy"
    expect_status 2
    expect_one_line
    expect_text 'copies of this program'
    [ ! -s "$out" ] && [ ! -e "$work/copy" ] || fail 'a copy trained'
}

# The environments of two launchers with different worlds: the rank does not train.
contradicting() {
    choose 'openmpi mpiexec' 'mpiexec srun' 'openmpi plain' 'plain mpiexec'
    draw_port
    all='' ranks=2
    draw 2
    for launcher in $chosen; do
        if [ "$launcher" = plain ]; then
            own="RANK=$drawn WORLD_SIZE=4 LOCAL_RANK=$drawn LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"
        else
            environment_of "$launcher" "$drawn" $ranks
        fi
        all="$all $own" ranks=3
    done
    # shellcheck disable=SC2086 # lists
    run env $all LS_JOB_TOKEN="$mark" "$build/ddp_train" $training --timeout=15 --steps=6
    expect_status 2
    expect_text 'contradict each other'
    expect_one_line
}

launchers_case() {
    draw 12
    case $drawn in
    0) by_mpirun ;;
    10 | 11) contradicting ;;
    1 | 2 | 3) as_a_launcher ;;
    4 | 5) copies ;;
    *) two_jobs ;;
    esac
}
