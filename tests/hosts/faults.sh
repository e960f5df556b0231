# What happens in mid-run: links that end, hosts that die. Sourced by hosts.sh.

patience=5 # seconds, --timeout of these jobs

start_endless() { # launcher, ranks on each host, options
    how=$1 each=$2
    shift 2
    # shellcheck disable=SC2086 # a list
    launch "$how" "$each" $exact --timeout=$patience --steps=100000000 --metrics="$work/metrics" "$@"
    await_steps 5
}

# Host 1 is lost: the ranks of the others end within their deadline, and name it or one of its ranks. If it is still there,
# its ranks do so, too, and name another.
lost() { # unplug, silence, die or power_off; launcher, ranks on each host, options
    event=$1
    shift
    start_endless "$@" || return 0
    $event 1
    for part in $job; do
        case $part:$event in
        host1*:die | host1*:power_off) continue ;;
        host1*) others='host[0-9]*[02-9]\|rank' ;;
        *) others='host1\|rank' ;;
        esac
        await_end "$(cat "$out.$part.pid")" "$part" $((patience + 10))
        expect_status_of "$part" 1 3
        grep -q "$others" "$err.$part" || fail "$part names nobody: $(head -n 1 "$err.$part")"
    done
}

# An elastic job goes on without the host.
goes_on() { # die or power_off, options
    event=$1
    shift
    launcher_options=--elastic=1:$host_count
    start_endless ddprun 1 "$@"
    launcher_options=''
    $event 1
    reached=$(wc -l <"$work/metrics")
    await_steps $((reached + 50))
    grep -q 'host1\|rank 1' "$err.host0" || fail "host0 does not name the lost one: $(head -n 1 "$err.host0")"
}
