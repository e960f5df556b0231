# An attacker, of this user or of another, at all ports and sockets of a job, while its ranks connect and while they
# train: garbage, idle connections, truncated messages, requests without a token and with wrong ones. The job ends as if
# it were alone.
what='jobs under attack end with the same weights'
least=10
steps=400

attacks_begin() {
    attacked=0 others=0
    # shellcheck disable=SC2086 # a list
    run "$build/ddp_train" --spawn=2 $training --steps=$steps
    expect_status 0
    expected=$(hash_of "$out")
}

start_attacker() { # manner, place...
    manner=$1
    shift
    draw 1000000
    attacker_seed=$drawn
    set -- "$build/hostile_attacker" "$attacker_seed" "$mark" "$manner" "$@"
    choose own own other
    if [ "$chosen" = other ] && [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
        others=$((others + 1))
        set -- setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
    fi
    start attacker "$@"
    attacker=$started
}

end_attacker() {
    is_running "$attacker" || fail 'the attacker has ended by itself'
    [ ! -s "$out.attacker" ] || attacked=$((attacked + 1))
    kill -KILL "$attacker" 2>/dev/null
    wait "$attacker" 2>/dev/null
    notes=", $attacked of them while attacked everywhere, $others by another user"
}

await_text() { # file: waits until it is not empty
    ticks=1500
    while [ ! -s "$1" ] && [ $ticks -gt 0 ]; do
        ticks=$((ticks - 1))
        sleep 0.02
    done
}

by_hand() { # token, or none
    draw_port
    token=$1 manner=rude options=$training
    [ -n "$token" ] || { manner=polite options=$(echo "$training" | sed "s| --quiet||"); }
    # shellcheck disable=SC2086 # a list
    start_rank 0 2 $port LS_JOB="$mark" LS_JOB_TOKEN="$token" "$build/ddp_train" $options --timeout=30 --steps=$steps
    pause 150
    start_attacker $manner $port
    await_text "$out.attacker"
    pause 1500
    # shellcheck disable=SC2086 # a list
    start_rank 1 2 $port LS_JOB="$mark" LS_JOB_TOKEN="$token" "$build/ddp_train" $options --timeout=30 --steps=$steps
    for r in 1 0; do
        await_rank $r
        expect_status 0
    done
    end_attacker
    expect_hash "$expected" "$out.0"
    if [ -n "$token" ]; then
        [ ! -s "$err.0" ] || fail "rank 0 says: $(head -n 1 "$err.0")"
    else
        expect_text 'any user of this machine can reach this job' "$err.0"
    fi
}

# The names of the sockets at which the processes of this case listen.
list_names() {
    for process in $(list_left); do
        ls -l "/proc/$process/fd" 2>/dev/null
    done | sed -n 's/.*socket:\[\([0-9]*\)\]/\1/p' >"$work/.inodes"
    awk 'NR == FNR { own[$1] = 1; next } ($7 in own) && $8 ~ /^@lockstep/ { print $8 }' "$work/.inodes" /proc/net/unix | sort -u
}

spawned() {
    choose spawn ddprun
    case $chosen in
    spawn) set -- "$build/ddp_train" --spawn=2 ;;
    ddprun) set -- "$build/ddprun" --nproc-per-node=2 "$build/ddp_train" ;;
    esac
    # shellcheck disable=SC2086 # a list
    start job "$@" $training --steps=$steps
    job=$started names='' ticks=200
    while [ -z "$names" ] && is_running "$job" && [ $ticks -gt 0 ]; do
        names=$(list_names)
        ticks=$((ticks - 1))
    done
    # shellcheck disable=SC2086 # a list
    start_attacker rude ${names:-@lockstep_store_none}
    await_end "$job" job
    end_attacker
    expect_status 0
    expect_hash "$expected" "$out.job"
    [ ! -s "$err.job" ] || fail "the job says: $(head -n 1 "$err.job")"
}

# Beyond loopback, connections without a token are refused.
no_token_beyond_loopback() {
    draw_port
    choose 10.0.0.1 192.168.7.7 0.0.0.0 example.invalid
    # shellcheck disable=SC2086 # a list
    run env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR="$chosen" MASTER_PORT=$port "$build/ddp_train" $training --steps=2 --timeout=10
    expect_status 1 2
    expect_one_line
    expect_text LS_JOB_TOKEN
}

attacks_case() {
    draw 8
    case $drawn in
    0) no_token_beyond_loopback ;;
    1) by_hand '' ;;
    2 | 3 | 4) by_hand "$mark" ;;
    *) spawned ;;
    esac
}
