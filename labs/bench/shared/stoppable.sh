#!/bin/sh
# Runs a command so that the first SIGINT, SIGTERM, SIGHUP or SIGQUIT ends it and all that it has started, within a second or so. A shell
# alone would wait for the command first, or end without it.
# usage: labs/bench/shared/stoppable.sh COMMAND...      (exit status: the command's, or 128 + the signal)
set -u
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }

# 0 while the command has not ended; what has ended and was not waited for is a zombie, Z.
runs() { { read -r _ _ state _ <"/proc/$child/stat"; } 2>/dev/null && [ "$state" != Z ]; }

# stop NUMBER: the command has a process group of its own, but for a moment at its start. A shell among them loses a signal that comes
# while it starts a command, so half a second later they get it again.
stop() {
    trap '' INT TERM HUP QUIT
    child=${!:-}
    [ -n "$child" ] || exit $((128 + $1)) # it has not begun
    kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
    for tenth in 1 2 3 4 5 6 7 8 9 10 11 12; do
        runs || break
        sleep 0.1
        if [ $tenth -eq 5 ]; then kill -TERM "-$child" 2>/dev/null; fi
    done
    kill -KILL "-$child" "$child" 2>/dev/null
    wait "$child"
    exit $((128 + $1))
}
trap 'stop 1' HUP
trap 'stop 2' INT
trap 'stop 3' QUIT # of a terminal, which does not reach the command's own session
trap 'stop 15' TERM
setsid "$@" &
wait $!
