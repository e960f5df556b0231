#!/bin/sh
# Checks that tests/hosts detects defects: for some cases, puts a defect in front of ddp_train, and fails unless the
# case reports it.
# usage: tests/hosts/self_test.sh BUILD
set -u
here=$(dirname "$0")
[ $# -eq 1 ] && [ -x "$1/ddp_train" ] || { echo 'usage: tests/hosts/self_test.sh BUILD' >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 1
stubs=$build/hosts_stubs
trap 'rm -rf "$stubs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

missed=0
# Case, part of its expected message, the defect: shell commands before the real program. `in_job`: it runs on a host.
while IFS='|' read -r case expected defect <&3; do
    rm -rf "$stubs" && mkdir -p "$stubs" && ln -s "$build"/* "$stubs/" || exit 1
    rm -f "$stubs/ddp_train" "$stubs/hosts"
    printf '#!/bin/sh\nin_job() { [ -n "${RANK:-}" ]; }\nprogram=%s/ddp_train\n%s\nexec "$program" "$@"\n' "$build" "$defect" >"$stubs/ddp_train"
    chmod +x "$stubs/ddp_train"
    "$here/hosts.sh" "$stubs" "$case" >"$stubs/said" 2>&1
    if [ $? -ne 1 ] || ! grep -q "^$case: .*$expected" "$stubs/said"; then
        echo "self-test: a defect was not found: $case, $expected"
        missed=1
    else
        sed -n "s/^$case: /self-test: found: $case: /p" "$stubs/said" | head -n 1 | cut -c -160
    fi
done 3<<'END'
late|weights are not|! in_job || set -- "$@" --seed=1
late|losses are not|! in_job || [ "$RANK" -ne 0 ] || { "$program" "$@"; status=$?; for word; do case $word in --dump-losses=*) echo 1 >>"${word#*=}" ;; esac; done; exit $status; }
never-comes|not one error|"$program" "$@" 2>/dev/null; exit $?
never-comes|says not one error|"$program" "$@"; status=$?; echo 'x: error: y' >&2; exit $status
never-comes|nobody says|echo 'x: error: y' >&2; exit 3
never-comes|status 0|exit 0
never-comes|still running|sleep 100
never-comes|a process is left|sleep 100 &
never-comes|shared memory is left|: >/dev/shm/left
never-comes|shared memory is left|: >"$TMPDIR/ompi.left"
END
exit $missed
