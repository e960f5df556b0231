#!/bin/sh
# Runs a command so that the first SIGINT, SIGTERM, SIGHUP or SIGQUIT ends the command and all processes that it has started, within a
# second or so. A shell alone would first wait for the command, or exit without ending it. If this script is killed (SIGKILL), its guard
# ends them.
# usage: labs/bench/shared/stoppable.sh COMMAND...      (exit status: the command's, or 128 + the signal)
#        labs/bench/shared/stoppable.sh --guard SESSION      the guard: ends the session if its standard input ends without a word
set -u
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }

# signal_session SIGNAL: sends it to every process of the command's session, in any process group. False if there is none; zombies, Z, do
# not count.
signal_session() {
    reached=1
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        set -- "$1" ${line##*) }
        if [ "$5" = "$child" ] && [ "$2" != Z ]; then
            pid=${stat#/proc/}
            kill "-$1" "${pid%/stat}" 2>/dev/null && reached=0
        fi
    done
    return $reached
}

# Repeats, since a process may have started another in between.
kill_session() { while signal_session KILL; do sleep 0.05; done; }

if [ "$1" = --guard ]; then
    child=$2
    read -r _ || kill_session
    exit 0
fi

# stop NUMBER: ends the session. A shell may lose a signal that arrives while it starts a command, so SIGTERM is repeated after half a
# second.
stop() {
    trap '' INT TERM HUP QUIT
    [ -n "$child" ] || child=${!:-}
    [ -n "$child" ] || exit $((128 + $1)) # the command has not been started
    kill -TERM "$child" 2>/dev/null # for a moment after its start, it has no session of its own
    signal_session TERM
    for tenth in 1 2 3 4 5 6 7 8 9 10 11 12; do
        signal_session 0 || break
        sleep 0.1
        [ $tenth -ne 5 ] || signal_session TERM
    done
    kill -KILL "$child" 2>/dev/null
    kill_session
    wait "$child"
    dismiss_guard
    exit $((128 + $1))
}

# Writes to the pipe, since a shell that is just starting may lose a signal.
dismiss_guard() { [ -z "$guard" ] || { echo done >&9 && wait "$guard"; } 2>/dev/null; }

child='' guard=''
trap 'stop 1' HUP
trap 'stop 2' INT
trap 'stop 3' QUIT # sent by a terminal, which does not reach the command's own session
trap 'stop 15' TERM
folder=$(mktemp -d) && mkfifo "$folder/pipe" || exit 1
# Only this shell writes to the pipe, and only the guard reads from it. Descriptor 7 is for the command: in the background it would have
# no standard input.
exec 7<&0 9<>"$folder/pipe" 8<"$folder/pipe"
rm -rf "$folder"
setsid "$@" <&7 7<&- 8<&- 9>&- &
child=$!
setsid "$0" --guard "$child" <&8 >/dev/null 2>&1 7<&- 8<&- 9>&- &
guard=$!
exec 7<&- 8<&-
wait "$child"
status=$?
dismiss_guard
exit $status
