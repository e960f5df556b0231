#!/bin/sh
# Jobs on several hosts: each a set of namespaces on this machine (host name, processes, network, /dev/shm), joined by
# a bridge. The cases cut links, slow them and drop their packets, kill hosts, and give wrong names and ports; each has a deadline.
# usage: tests/hosts/hosts.sh BUILD          every case
#        tests/hosts/hosts.sh BUILD fast     those of CI
#        tests/hosts/hosts.sh BUILD CASE...
# All processes are in namespaces that end with this script, even if it is killed, so two runs do not disturb each other.
# BUILD/hosts gets failures.txt, and a folder for each case that failed (HOSTS_KEEP=1: for every case). Exit status: 0 none failed, 1 some, 2 wrong usage.
set -u
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
usage='usage: tests/hosts/hosts.sh BUILD [fast | CASE...]'
[ $# -ge 1 ] && [ -x "$1/ddp_train" ] || { echo "$usage" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd) && tree=$(cd "$here/../.." && pwd) && build=$(cd "$1" && pwd) || exit 1
shift

# Outside: pid 1 of the namespaces ignores signals, but dies with unshare, and unshare dies with this shell.
if [ "${LS_HOSTS_INSIDE:-}" != yes ] || [ $$ -ne 1 ]; then
    namespaces='--mount --net --uts --pid --fork --kill-child --mount-proc'
    [ "$(id -u)" -eq 0 ] || namespaces="--map-root-user $namespaces"
    for tool in unshare nsenter setpriv ip tc bridge; do
        command -v $tool >/dev/null || { echo "hosts: $tool is not here (packages util-linux, iproute2): no case was run" >&2; exit 1; }
    done
    [ -e "$build/lib/ls_mpi.so" ] || { echo "hosts: $build/lib/ls_mpi.so is not here (packages openmpi-bin, libopenmpi-dev, libpmix-dev): no case was run" >&2; exit 1; }
    # shellcheck disable=SC2086 # a list
    unshare $namespaces sh -c 'mount -t tmpfs none /run && ip link add switch type bridge' 2>/dev/null ||
        { echo 'hosts: this machine forbids namespaces or bridges (a container without --privileged?): no case was run; try as root' >&2; exit 1; }
    # shellcheck disable=SC2086 # a list
    LS_HOSTS_INSIDE=yes setpriv --pdeathsig KILL unshare $namespaces sh "$here/hosts.sh" "$build" "$@" </dev/null &
    inside=$!
    trap 'kill -KILL $inside 2>/dev/null; exit 143' INT TERM HUP
    wait $inside
    exit $?
fi

. "$here/../hostile/case.sh"
. "$here/network.sh"
. "$here/jobs.sh"
. "$here/trains.sh"
. "$here/faults.sh"
. "$here/refusals.sh"

# set, name, hosts, function and its arguments
cases() { grep -v '^ *\(#\|$\)' "$here/cases"; }

wanted=" $* "
case $wanted in '  ' | ' fast ') ;; *)
    for name in "$@"; do
        cases | awk -v name="$name" '$2 == name { found = 1 } END { exit !found }' || { echo "hosts: there is no case '$name'; see tests/hosts/cases" >&2; exit 2; }
    done ;;
esac

folder=$build/hosts
rm -rf "$folder" && mkdir -p "$folder" && : >"$folder/failures.txt" && mount -t tmpfs none /run && mkdir /run/tmp || exit 1

one_case() { # name, hosts, function, arguments...
    area='' case=$1 host_count=$2 mark=$$-$1 failed_cases=0 left_out='' deadline=60 shared_before=''
    work=$folder/$1 out=$work/.out err=$work/.err commands=$work/.commands
    again="tests/hosts/hosts.sh $build $1"
    shift 2
    mkdir -p "$work" && : >"$commands" && : >"$err"
    began=$(date +%s)
    make_hosts "$host_count" || fail 'the hosts could not be made'
    [ $failed_cases -gt 0 ] || "$@"
    expect_nothing_left
    end_case
    remove_hosts
    all=$((all + 1)) failures=$((failures + failed_cases)) result=passed
    [ $failed_cases -eq 0 ] || result=FAILED
    [ -z "$left_out" ] || { result="NOT run: $left_out" not_run=$((not_run + 1)); }
    printf '%-22s %3d s  %s\n' "$case" $(($(date +%s) - began)) "$result"
    [ $failed_cases -gt 0 ] || [ -n "${HOSTS_KEEP:-}" ] || rm -rf "$work"
}

all=0 failures=0 not_run=0
cases >"$folder/cases"
while read -r set name rest <&3; do
    case $wanted in '  ') ;; ' fast ') [ "$set" = fast ] || continue ;; *" $name "*) ;; *) continue ;; esac
    # shellcheck disable=SC2086 # a list
    one_case "$name" $rest
done 3<"$folder/cases"
echo "hosts: $all cases, $failures failed, $not_run not run"
[ $failures -eq 0 ] || cat "$folder/failures.txt"
[ $failures -eq 0 ]
