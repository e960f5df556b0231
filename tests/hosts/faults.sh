# Faults during a run: links that fail, hosts that die. Sourced by hosts.sh.

patience=10 # seconds, --timeout of these jobs

start_endless() { # launcher, ranks on each host, options
    how=$1 each=$2
    shift 2
    # shellcheck disable=SC2086 # a list
    launch "$how" "$each" $exact --timeout=$patience --steps=100000000 --metrics="$work/metrics" "$@"
    await_steps 5
}

# Host 1 is lost: the ranks of the others end within their deadline, and name it or one of its ranks. If it is still alive,
# its ranks also end, and name another.
lost() { # unplug, silence, die or power_off; launcher, ranks on each host, options
    event=$1
    shift
    start_endless "$@" || return 0
    $event 1
    for part in $job; do
        case $part:$event in host1*:die | host1*:power_off) continue ;; esac
        await_end "$(cat "$out.$part.pid")" "$part" $((patience + 10))
        expect_status_of "$part" 1 3
        expect_named "$part"
    done
}

# Host 1 or one of its ranks; on host 1, another.
expect_named() { # name of a part; the time limit in seconds, by default 0
    case $1 in host1*) lost_hosts=$(echo "$hosts" | grep -vx 1) ;; *) lost_hosts=1 ;; esac
    named=''
    for h in $lost_hosts; do named="$named|host$h\\b|ranks? ([0-9]+(, | and | to ))*($(seq -s '|' $((h * each)) $((h * each + each - 1))))\\b"; done
    ticks=$((${2:-0} * 10))
    while ! sed 's/^[a-z_]*\[rank [0-9]*\]: //' "$err.$1" | grep -qE "${named#|}"; do
        ticks=$((ticks - 1))
        [ $ticks -gt 0 ] || { fail "$1 names nobody that is lost: $(head -n 1 "$err.$1")"; return; }
        sleep 0.1
    done
}

# An elastic job continues without the host.
goes_on() { # die or power_off, options
    event=$1
    shift
    launcher_options=--elastic=1:$host_count
    start_endless ddprun 1 "$@"
    launcher_options=''
    $event 1
    reached=$(wc -l <"$work/metrics")
    await_steps $((reached + 50))
    expect_named host0 15
    for part in $job; do # SIGTERM to the remaining launchers
        launching=$(cat "$out.$part.pid")
        ! is_running "$launching" || kill -TERM "$(cat "/proc/$launching/task/$launching/children")"
        await_end "$launching" "$part after SIGTERM" 20
    done
}
