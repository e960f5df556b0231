# SIGKILL at random moments to random ranks of elastic jobs, some of which return: the job continues with the others to its
# end, with the weights of the same groups run as separate jobs, each resumed from a checkpoint of the one before.
# (tests/programs/test_elastic_runs.c counts samples.)
what='went on without the killed; the bits of checkpoints'
least=30
steps=2500

elastic_begin() { kills=0 joins=0; }

# Sets $chosen to one of the launcher's ranks; empty if there are none.
choose_rank() { # process of the launcher
    children='' chosen=''
    { read -r children <"/proc/$1/task/$1/children"; } 2>/dev/null # it has no final newline
    for child in $children; do # not the guard
        { read -r called <"/proc/$child/comm"; } 2>/dev/null && [ "$called" = ddp_train ] && ranks="$ranks $child"
    done
    # shellcheck disable=SC2086 # a list
    [ -z "$ranks" ] || choose $ranks
}

# Runs each group in turn, as the job has reported them.
expect_groups() { # file with the job's output
    from=0 count=4 resume=''
    for leg in $(sed -n 's/^.*; \([0-9]*\) ranks* go[es]* on from step \([0-9]*\)$/\1:\2/p' "$1") "0:$steps"; do
        step=${leg#*:}
        if [ "$step" -gt "$from" ]; then
            # shellcheck disable=SC2086 # lists
            run "$build/ddp_train" --spawn=$count $elastic_options --steps=$step --save="$work/leg" $resume
            expect_status 0
            resume=--resume=$work/leg
            from=$step
        fi
        count=${leg%:*}
    done
    rm -f "$work/leg"
    expect_hash "$reached"
}

elastic_case() {
    choose '' '--optimizer=sgd --momentum=0.9' '--shard=contiguous --allreduce=ring --bucket-cap-mb=0.01' '--precision=fp16 --accumulate=2'
    elastic_options="--model=mlp:784,16,10 --batch-size=60 --no-evaluate --timeout=20 $chosen"
    draw 4
    restarts=$drawn
    # shellcheck disable=SC2086 # a list
    start job "$build/ddp_train" --spawn=4 --elastic=1:4 --max-restarts=$restarts $elastic_options --steps=$steps
    job=$started
    draw 5
    for time in $(seq 0 "$drawn"); do
        pause 400
        ranks=''
        choose_rank "$job"
        [ -z "$chosen" ] || { kill -KILL "$chosen" 2>/dev/null && kills=$((kills + 1)); }
    done
    await_end "$job" 'the elastic job' 60
    said=$err.job
    # All may have died, or one before the rendezvous.
    if grep -q 'error: .*rank [0-9]* (pid [0-9]*) was ended by signal 9' "$said"; then
        expect_status 1
        return
    fi
    reached=$(hash_of "$out.job")
    joins=$((joins + $(grep -c ' joins' "$said")))
    [ -n "$reached" ] || fail "it has ended otherwise: $(tail -n 1 "$said")"
    [ -z "$reached" ] || expect_groups "$said"
    notes=", $kills ranks killed, $joins came back"
}
