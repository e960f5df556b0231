#!/bin/sh
# Runs a command where the kernel hands programs for another machine to qemu: the command itself, and whatever it starts, may be one. Where
# nothing on this machine does that (package binfmt-support), qemu is registered in a user namespace of the command's own, which Linux takes
# from 6.7 on, so that the machine stays as it is.
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
*) fail "programs for $machine do not run here, and only aarch64 is known: package qemu-user-static and binfmt-support" ;;
esac
qemu=$(command -v "qemu-$machine-static" "qemu-$machine" | head -n 1)
[ -n "$qemu" ] || fail "programs for $machine need qemu: package qemu-user-static"
# F: the interpreter is opened now, and so found from any root; P: argv[0] stays.
rule=":qemu-$machine:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00$number:\
\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:$qemu:FP"
unshare -Urm true 2>/dev/null || fail "programs for $machine do not run here, and user namespaces are not allowed: package binfmt-support"
# In the namespace: enter.sh FORMATS RULE FOLDER HOLDER COMMAND...
enter='set -eu; formats=$1 rule=$2; cd "$3"; [ -z "$4" ] || kill "$4"; shift 4
    mount -t binfmt_misc none "$formats" && printf "%s" "$rule" >"$formats/register" || {
        echo "emulated.sh: this kernel takes no programs of other machines in a user namespace (before Linux 6.7): package binfmt-support" >&2; exit 1; }
    exec "$@"'
if [ "$(id -u)" -eq 0 ]; then # with all users, whom some tests become
    unshare -Um --propagation private sleep 60 &
    holder=$!
    until [ "$(readlink "/proc/$holder/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
    { echo '0 0 4294967294' >"/proc/$holder/uid_map" && echo '0 0 4294967294' >"/proc/$holder/gid_map"; } 2>/dev/null &&
        exec nsenter -t "$holder" -U -m sh -c "$enter" sh "$formats" "$rule" "$PWD" "$holder" "$@"
    kill "$holder" 2>/dev/null || : # already gone
fi
exec unshare -Urm sh -c "$enter" sh "$formats" "$rule" "$PWD" '' "$@"
