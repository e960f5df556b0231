#!/bin/sh
# Draws the picture at the top of a lab's sheet: lab.conf has the command that prints its data ("picture COMMAND"), and picture.gp in the
# lab's folder draws picture.png from that. `make lab-pictures` calls it.
# usage: labs/course/pictures.sh [--out FOLDER] LAB...      --out: as FOLDER/LAB.png, for a check
set -u
. labs/course/conf.sh
to=''
[ "${1:-}" = --out ] && { to=$2; shift 2; mkdir -p "$to" || exit 1; }
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    [ -f "$folder/picture.gp" ] || continue
    data=$BUILD/labs/$lab/picture.csv picture=${to:+$to/$lab}
    picture=${picture:-$folder/picture}
    mkdir -p "$BUILD/labs/$lab" && sh -c "$(conf_lines "$folder" picture)" >"$data" && [ -s "$data" ] &&
        LC_ALL=C.UTF-8 gnuplot -c "$folder/picture.gp" "$data" "$picture" || { words picture-failed "$folder" >&2; exit 1; }
    echo "$picture.png"
done
