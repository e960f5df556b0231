# Hosts as namespaces, and faults of their links. Sourced by hosts.sh, which is in the namespace of the switch. Host H
# is called hostH, with 10.77.0.(H+1) on eth0; eth1, 10.78.0.(H+1), is not connected. The switch itself is a host of the
# network, too: login, 10.77.0.254.

export LS_HOSTS=/run/hosts # a file for each host: the pids of its init, and of the init's keeper

address_of() { echo "10.77.0.$(($1 + 1))"; }
on() { echo "$here/enter.sh host$1"; } # the words before a command that run it on a host

make_hosts() { # count
    hosts=$(seq 0 $(($1 - 1)))
    mkdir -p $LS_HOSTS
    echo 127.0.0.1 localhost >$LS_HOSTS/names
    echo 10.77.0.254 login >>$LS_HOSTS/names
    for h in $hosts; do echo "$(address_of "$h") host$h" >>$LS_HOSTS/names; done
    hostname login && mount --bind $LS_HOSTS/names /etc/hosts || return 1
    ip link set lo up && ip link add switch type bridge && ip address add 10.77.0.254/24 dev switch && ip link set switch up || return 1
    for h in $hosts; do make_host "$h" || return 1; done
    # No ARP requests: a frame to a dead host vanishes, as on a routed network.
    for h in $hosts login; do
        for other in $hosts; do
            [ "$h" = "$other" ] || enter "$h" ip neigh replace "$(address_of "$other")" lladdr "02:00:00:00:00:0$other" dev "$(card_of "$h")" || return 1
        done
    done
}

enter() { # host or login, command
    where=$1
    shift
    case $where in login) "$@" ;; *) "$here/enter.sh" "host$where" "$@" ;; esac
}

card_of() { case $1 in login) echo switch ;; *) echo eth0 ;; esac; }

# The init of a host: a shell, since it reaps orphaned processes. The keeper is its parent.
make_host() {
    # shellcheck disable=SC2086 # a list
    setpriv --pdeathsig KILL unshare --mount --net --uts --fork --kill-child ${own_pids:---pid --mount-proc} sh -c '
        hostname "$1" && mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && mkdir /run/tmp && touch /run/up || exit 1
        while :; do sleep 3600; done' init "host$1" &
    keeper=$! init='' ticks=100
    while [ ! -e "/proc/$init/root/run/up" ] || [ -z "$init" ]; do
        { read -r init <"/proc/$keeper/task/$keeper/children"; } 2>/dev/null
        init=${init% } ticks=$((ticks - 1))
        [ $ticks -gt 0 ] || return 1
        sleep 0.02
    done
    printf '%s\n' "$init" "$keeper" >"$LS_HOSTS/host$1"
    ip link add "port$1" type veth peer name eth0 netns "$init" && ip link set "port$1" master switch up &&
        ip link add "spare$1" type veth peer name eth1 netns "$init" && ip link set "spare$1" up &&
        "$here/enter.sh" "host$1" sh -c "
            ip link set lo up && ip link set eth0 address 02:00:00:00:00:0$1 && ip address add $(address_of "$1")/24 dev eth0 &&
            ip link set eth0 up && ip address add 10.78.0.$(($1 + 1))/24 dev eth1 && ip link set eth1 up"
}

processes_of() { # network namespace
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net")" != "$1" ] || echo "${process#/proc/}"
    done
}

die() { # host: all its processes at once, and then its network
    { read -r init && read -r keeper; } <"$LS_HOSTS/host$1"
    # shellcheck disable=SC2046 # a list
    kill -KILL "$keeper" $(processes_of "$(readlink "/proc/$init/ns/net")") 2>/dev/null
    wait "$keeper" 2>/dev/null
    rm "$LS_HOSTS/host$1"
    for link in port spare; do ip link del "$link$1" 2>/dev/null; done # if they were not removed with the host
}

remove_hosts() {
    for h in $hosts; do [ ! -e "$LS_HOSTS/host$h" ] || die "$h"; done
    ip link del switch
    umount /etc/hosts
}

# --- links ------------------------------------------------------------------------------------------------------------

unplug() { ip link set "port$1" down; }           # the cable is pulled: the host detects it
silence() { ip link set "port$1" nomaster; }   # frames vanish, without an error on either side
restore() { ip link set "port$1" master switch up; }
power_off() { silence "$1" && die "$1"; }      # it dies without closing its connections

slow() { # rate, as 10mbit, of the links of all hosts, in both directions
    for h in $hosts; do
        tc qdisc replace dev "port$h" root tbf rate "$1" burst 64kb latency 200ms &&
            enter "$h" tc qdisc replace dev eth0 root tbf rate "$1" burst 64kb latency 200ms || fail 'tbf could not be set'
    done
}

# Delay and loss, if the kernel supports them.
impair() { # words of netem
    for h in $hosts; do
        # shellcheck disable=SC2086 # a list
        tc qdisc replace dev "port$h" root netem $1 2>/dev/null || { left_out='this kernel has no netem'; return 1; }
    done
}

# --- remains ----------------------------------------------------------------------------------------------------------

# In addition to processes (case.sh): shared memory and temporary files of each living host.
shared_names() {
    for h in $hosts; do
        { read -r init <"$LS_HOSTS/host$h"; } 2>/dev/null || continue
        find "/proc/$init/root/dev/shm" "/proc/$init/root/run/tmp" -mindepth 1 ! -path '*/torchelastic_*' # left by torchrun
    done
    find /run/tmp -mindepth 1
}
