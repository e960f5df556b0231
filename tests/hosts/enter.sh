#!/bin/sh
# usage: tests/hosts/enter.sh HOST COMMAND...       runs the command on a host of a test (network.sh)
#        tests/hosts/enter.sh --shell HOST WORDS... like ssh: a shell there reads all words as one line
shell=''
[ "$1" != --shell ] || { shell=yes; shift; }
read -r init <"$LS_HOSTS/$1" || exit 255
shift
[ -z "$shell" ] || set -- sh -c "$*"
exec nsenter -t "$init" --mount --net --uts --pid --wd env TMPDIR=/run/tmp "$@"
