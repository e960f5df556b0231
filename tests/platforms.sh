#!/bin/sh
# `make platform-check`: in a fresh root of each Debian release (debootstrap), with only make and git, clones this
# tree's last commit and runs the README's commands as a new user types them: make setup, make, make test, hello, both
# modes, a short bench; and install-check. Of this machine only the kernel is used. The roots are mounts in namespaces
# that end with this script; its folder is removed, too.
# usage: tests/platforms.sh BUILD [RELEASE...]      bookworm and trixie if none is named; as root, 3 GB of TMPDIR for each
#        tests/platforms.sh --same-bits      only the step of that name, in any built tree
#        MIRROR: of Debian (debootstrap's own if not given); ROOMS: the tests of these rooms ('*'), ROOMS=none: no tests
# BUILD/platforms/RELEASE.log has the whole output. Exit status: 0 all passed, 1 something failed or was not run, 2
# wrong usage.
set -u
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
[ $# -ge 1 ] || { echo 'usage: tests/platforms.sh BUILD [RELEASE...]' >&2; exit 2; }

# DP's and DDP's hashes of a few models must be equal; compare those of two machines by eye.
if [ "$1" = --same-bits ]; then
    status=0 line=''
    for model in mlp convnet gpt:2,2,32,16; do
        options="--model $model --device-kind cpu --batch-size 16 --steps 3 --seed 0 --no-evaluate --quiet"
        # shellcheck disable=SC2086 # a list
        dp=$(build/dp_train --devices 2 $options | grep -oE '[0-9a-f]{16}') ddp=$(build/ddp_train --spawn 2 --shard contiguous $options | grep -oE '[0-9a-f]{16}')
        [ -n "$dp" ] && [ "$dp" = "$ddp" ] || status=1
        line="$line$model $dp $([ "$dp" = "$ddp" ] || echo "DDP $ddp ")"
    done
    echo "$line"
    exit $status
fi

refuse() { echo "platform-check: $*: nothing was checked" >&2; exit 1; }
command -v debootstrap >/dev/null || refuse 'debootstrap is not here (package debootstrap)'
[ "$(id -u)" -eq 0 ] || refuse 'debootstrap and mounts need root'
namespaces='--mount --pid --fork --kill-child --propagation private'
# shellcheck disable=SC2086 # a list
unshare $namespaces true 2>/dev/null || refuse 'this machine forbids namespaces (a container without --privileged)'
tree=$(git rev-parse --show-toplevel) && [ -d "$tree/.git" ] || refuse "this is no clone of its own, which roots could clone"
mkdir -p "$1/platforms" && logs=$(cd "$1/platforms" && pwd) && folder=$(mktemp -d) || exit 1
shift
[ $# -gt 0 ] || set -- bookworm trixie
trap 'rm -rf --one-file-system "$folder"' EXIT
trap 'exit 130' INT TERM HUP

# Inside: the root becomes the only file system, as in a container (tests mount disks, which a chroot forbids).
cat >"$folder/enter" <<'enter'
set -e
cd "$1" && mount --rbind . . && cd "$1"
mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && mount -t tmpfs tmpfs dev/shm
mount --bind "$2" mnt && cp /etc/resolv.conf etc/resolv.conf
mkdir -p root/outside && pivot_root . root/outside && cd / && umount -l root/outside
[ ! -d root/lockstep ] || cd root/lockstep
exec env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive ROOMS="$4" ${http_proxy:+http_proxy="$http_proxy"} sh -c "$3"
enter

# A step a line: its name, and the command.
cat >"$folder/steps" <<'steps'
make and git|apt-get update -qq && apt-get install -y -qq --no-install-recommends make git
clone|git -c safe.directory='*' clone -q --no-hardlinks /mnt /root/lockstep && git -C /root/lockstep log -1 --format=%h
make setup|make setup
make|make
no CUDA, no Python|! command -v nvcc && ! command -v python3 && echo neither
hello|build/hello
same bits|tests/platforms.sh --same-bits
bench|make bench-dp-vs-ddp MODEL=mlp N=2
make test|[ "$ROOMS" = none ] || make test ROOMS="$ROOMS"
install-check|apt-get install -y -qq --no-install-recommends pkg-config man-db && make install-check
versions|dpkg-query -W -f '${Package} ${Version}; ' gcc g++ libc6 make git gnuplot-nox libdnnl-dev libhwloc-dev libcjson-dev zlib1g-dev libcmocka-dev libmd4c-dev libexpat1-dev
steps

failed=0
for release; do
    root=$folder/$release log=$logs/$release.log
    : >"$log"
    enter() { # COMMAND
        # shellcheck disable=SC2086 # a list
        unshare $namespaces sh "$folder/enter" "$root" "$tree" "$1" "${ROOMS:-*}" </dev/null >>"$log" 2>&1
    }
    # shellcheck disable=SC2086 # a list; a mirror or none
    if ! unshare $namespaces debootstrap --variant=minbase "$release" "$root" ${MIRROR:+"$MIRROR"} </dev/null >>"$log" 2>&1; then
        echo "platform-check: $release: debootstrap failed: $(tail -n 1 "$log")" >&2
        failed=1
        continue
    fi
    while IFS='|' read -r name typed; do
        began=$(date +%s)
        echo "=== $typed" >>"$log"
        if enter "$typed"; then verdict=ok; else verdict=FAILED failed=1; fi
        printf '%-10s %-20s %5d s  %-7s %s\n' "$release" "$name" $(($(date +%s) - began)) $verdict "$(tail -n 1 "$log" | cut -c1-400)"
        case $verdict-$name in FAILED-make | FAILED-clone | "FAILED-make setup") break ;; esac
    done <"$folder/steps"
    rm -rf --one-file-system "$root"
done
[ $failed = 0 ] || echo "platform-check: see $logs" >&2
exit $failed
