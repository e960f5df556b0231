# SIGKILL or SIGSTOP at a random moment to a rank of a grid: of a pipeline, of ranks that share layers, of both. The others end
# within the deadline, with status 3 and a line that names it; when continued, a stopped rank reports that the others have
# given up.
what='ranks of grids killed or stopped; the others name them'
least=12

timeout_s=4

# ranks|options
grids() {
    text='--data=sums:1 --model=gpt:2,4,32,16'
    cat <<END
2|--pipeline=2 --accumulate=4
3|--pipeline=3 --accumulate=6 --model=mlp:784,32,32,32,10
3|--pipeline=3 --accumulate=4 --schedule=gpipe --model=convnet
4|--pipeline=2 --accumulate=3 --shard-state=1 --clip-norm=1
2|--tensor=2
4|--tensor=2 --shard-state=2 --model=convnet
2|$text --tensor=2 --sequence-parallel
4|$text --tensor=4 --sequence-parallel
4|$text --tensor=2 --sequence-parallel --pipeline=2 --accumulate=2
8|$text --tensor=2 --pipeline=2 --accumulate=2 --schedule=gpipe
8|$text --tensor=2 --sequence-parallel --pipeline=2 --accumulate=2 --shard-state=1
END
}

pick_grid() { # row; sets $ranks, $options
    ranks=${1%%|*} options=$(echo "${1#*|}" | tr '~' ' ')
}

grids_begin() {
    for row in $(grids | tr ' ' '~'); do
        pick_grid "$row"
        # shellcheck disable=SC2086 # lists
        run "$build/ddp_train" --spawn="$ranks" $training $options --steps=2
        expect_status 0
    done
}

grids_case() {
    # shellcheck disable=SC2046 # a list
    choose $(grids | tr ' ' '~')
    pick_grid "$chosen"
    choose inline threads
    streams=$chosen
    choose KILL KILL STOP
    signal=$chosen
    draw "$ranks"
    lost=$drawn
    draw_port
    for r in $(seq 0 $((ranks - 1))); do
        # shellcheck disable=SC2086 # lists
        start_rank "$r" "$ranks" "$port" LS_JOB_TOKEN="$mark" LS_CPU_STREAMS=$streams "$build/ddp_train" $training $options --timeout=$timeout_s --steps=100000000
    done
    pause 2500
    eval "victim=\$rank_$lost"
    kill -$signal "$victim"
    echo "# SIG$signal to rank $lost" >>"$commands"
    for r in $(seq 0 $((ranks - 1))); do
        [ "$r" -eq "$lost" ] || expect_survivor "$r"
    done
    if [ $signal = STOP ]; then
        kill -CONT "$victim"
        await_end "$victim" "rank $lost, awake again" 10
        expect_status 3
        expect_one_line "$err.$lost"
    fi
    wait "$victim" 2>/dev/null
}

# Rank 0 also serves the store of the rendezvous.
expect_survivor() { # rank
    eval "await_end \$rank_$1 'rank $1' $((3 * timeout_s))"
    expect_status 3
    expect_one_line "$err.$1"
    [ "$lost" -eq 0 ] && grep -q 'the store at' "$err.$1" || expect_text "rank $lost" "$err.$1"
}
