#!/bin/sh
# Runs a command, and all programs that it starts, with the kernel passing programs for another machine to qemu. If this machine has no such
# registration (package binfmt-support), registers qemu in a new user namespace, which Linux supports since 6.7: the machine is not changed.
# usage: [QEMU_LD_PREFIX=FOLDER] tests/emulated.sh aarch64 COMMAND...     (FOLDER: with that machine's libraries, if the system has none)
set -eu
machine=$1
shift
export LS_TEST_DEADLINE_S="${LS_TEST_DEADLINE_S:-2400}" # for tests/run.sh: qemu is ten times slower or more
fail() { echo "emulated.sh: $*" >&2; exit 1; }

formats=/proc/sys/fs/binfmt_misc
grep -qs enabled "$formats/qemu-$machine" && exec "$@"
case $machine in
aarch64) number='\xb7\x00' ;; # the ELF header's e_machine
*) fail "cannot run programs for $machine: only aarch64 is supported without a registration; install qemu-user-static and binfmt-support" ;;
esac
qemu=$(command -v "qemu-$machine-static" "qemu-$machine" | head -n 1)
[ -n "$qemu" ] || fail "cannot run programs for $machine: qemu is not installed; install qemu-user-static"
# F: opens the interpreter now, so that it is found from any root; P: keeps argv[0].
rule=":qemu-$machine:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00$number:\
\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:$qemu:FP"
unshare -Urm true 2>/dev/null || fail "cannot run programs for $machine: user namespaces are not allowed; install binfmt-support"
# In the namespace: enter.sh FORMATS RULE FOLDER HOLDER COMMAND...
enter='set -eu; formats=$1 rule=$2; cd "$3"; [ -z "$4" ] || kill "$4"; shift 4
    mount -t binfmt_misc none "$formats" && printf "%s" "$rule" >"$formats/register" || {
        echo "emulated.sh: cannot register qemu in a user namespace (Linux before 6.7?); install binfmt-support" >&2; exit 1; }
    exec "$@"'
if [ "$(id -u)" -eq 0 ]; then # maps all users: some tests switch to one
    unshare -Um --propagation private sleep 60 &
    holder=$!
    until [ "$(readlink "/proc/$holder/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
    { echo '0 0 4294967294' >"/proc/$holder/uid_map" && echo '0 0 4294967294' >"/proc/$holder/gid_map"; } 2>/dev/null &&
        exec nsenter -t "$holder" -U -m sh -c "$enter" sh "$formats" "$rule" "$PWD" "$holder" "$@"
    kill "$holder" 2>/dev/null || : # already gone
fi
exec unshare -Urm sh -c "$enter" sh "$formats" "$rule" "$PWD" '' "$@"
