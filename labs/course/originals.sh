#!/bin/sh
# Checksums of the files from which labs cut functions, in labs/course/originals: a tree with a different file is not a
# reference (conf.sh's refuse_changed_tree).
# usage: labs/course/originals.sh write|check     check: exit status 1, and a line, where a file has another sum
set -u
. labs/course/conf.sh
case $1 in
write) original_sums >labs/course/originals ;;
check)
    changed=$(changed_files)
    [ -z "$changed" ] && exit
    echo "changed since labs/course/originals was written: $changed; if that is meant, labs/course/originals.sh write" >&2
    exit 1
    ;;
*) echo "labs/course/originals.sh: write or check, not '$1'" >&2 && exit 2 ;;
esac
