# Errors before a job begins: each rank reports them in one line, within its deadline. Sourced by hosts.sh.

# Ranks without a launcher, one on each host; $settings are for all.
try() { # seconds of --timeout
    # shellcheck disable=SC2086 # a list
    launch by_hand 1 $exact --timeout="$1" --steps=5
}

expect_refusals() { # statuses, text that one of them has
    for part in $job; do
        await_end "$(cat "$out.$part.pid")" "$part" 20
        # shellcheck disable=SC2086 # a list
        expect_status_of "$part" $1
        [ "$(grep -c 'error: ' "$err.$part")" -eq 1 ] || fail "$part says not one error: $(head -n 3 "$err.$part")"
    done
    cat "$err".host* | grep -q -- "$2" || fail "nobody says '$2': $(cat "$err".host* | head -n 2)"
}

no_token() {
    mark_kept=$mark mark=''
    try 5
    mark=$mark_kept
    expect_refusals '1 2' LS_JOB_TOKEN
}

# Debian writes 127.0.1.1 for the host's own name. With LS_SOCKET_IFNAME that is no problem.
own_name_on_loopback() {
    sed 's/.* host0$/127.0.1.1 host0/' "$LS_HOSTS/names" >"$work/names"
    enter 0 mount --bind "$work/names" /etc/hosts
    try 5
    expect_refusals '1 2 3' 'LS_SOCKET_IFNAME.*10.77.0.1'
    settings=LS_SOCKET_IFNAME=eth0
    same_bits by_hand 1
    settings=''
}

unknown_interface() {
    settings=LS_SOCKET_IFNAME=eth9
    try 5
    settings=''
    expect_refusals '1 2 3' eth9
}

# An interface whose network does not reach the other hosts, as behind a firewall.
dead_interface() {
    settings=LS_SOCKET_IFNAME=eth1
    try 5
    settings=''
    expect_refusals '1 3' '10\.78\.0'
}

closed_from_the_beginning() {
    silence 1
    try 5
    expect_refusals '1 3' 'host0\|rank'
}

port_in_use() {
    # shellcheck disable=SC2046,SC2086 # lists
    start other $(on 0) env LS_JOB_TOKEN=other LS_JOB=other RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=host0 \
        MASTER_PORT=$port "$build/ddp_train" $exact --steps=5 --timeout=60
    other=$started
    sleep 1
    try 5
    expect_refusals '1 2 3' "$port"
    kill -KILL "$(cat "/proc/$other/task/$other/children")"
    await_end "$other" 'the other job'
}

late() { # the delay in seconds, less than the deadline
    train_on_one_host "$host_count" --steps=5
    launcher=by_hand each=1 ranks=$host_count job=''
    for h in $hosts; do
        [ "$h" -eq 0 ] || sleep "$1"
        # shellcheck disable=SC2086 # a list
        launch_on "$h" $exact --timeout=20 --steps=5 --save-weights="$work/all.weights" --dump-losses="$work/all.losses"
    done
    await_job 40 0
    expect_same
}

never_comes() {
    launcher=by_hand each=1 ranks=$host_count job=''
    # shellcheck disable=SC2086 # a list
    launch_on 0 $exact --timeout=4 --steps=5
    expect_refusals '1 3' 'rank 1\|host1'
}

# The program on host 1 has a different build id.
other_build() {
    cp "$build/ddp_train" "$work/other" && objcopy --dump-section .note.gnu.build-id="$work/id" "$work/other" &&
        { head -c 16 "$work/id" && head -c 20 /dev/urandom; } >"$work/id2" &&
        objcopy --update-section .note.gnu.build-id="$work/id2" "$work/other" || { fail 'no other build could be made'; return; }
    launcher=by_hand each=1 ranks=$host_count job=''
    for h in $hosts; do
        [ "$h" -eq 0 ] || program=$work/other
        # shellcheck disable=SC2086 # a list
        launch_on "$h" $exact --timeout=5 --steps=5
    done
    program=''
    expect_refusals '1 2 3' 'build'
}

# --- the network itself ---------------------------------------------------------------------------------------------------

# No process listens at port 9: a host that is reached refuses at once (status 1), others never answer (124).
reaches() { # from, to; sets $status
    enter "$1" timeout 1 bash -c ": >/dev/tcp/host$2/9" 2>/dev/null
    status=$?
}

links() {
    reaches 0 1 && expect_status 1
    reaches 1 0 && expect_status 1
    for event in unplug silence; do
        $event 1
        reaches 0 1 && expect_status 124
        reaches 1 0 && expect_status 1 124
        restore 1
        ip link set port1 up
        enter 1 ip neigh replace "$(address_of 0)" lladdr 02:00:00:00:00:00 dev eth0
    done
    reaches 0 1 && expect_status 1
    slow 10mbit
    tc qdisc show dev port1 | grep -q 'tbf.* 10Mbit' || fail "no tbf: $(tc qdisc show dev port1)"
    power_off 1
    reaches 0 1 && expect_status 124
}
