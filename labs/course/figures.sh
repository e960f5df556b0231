#!/bin/sh
# The numbers in the labs' sheets, from the labs' own commands. A sheet has them between marks that a reader does not see:
#     each rank sends <!-- ring-bytes -->1,835,008 =<!-- / --> bytes
# and lab.conf says what prints them: "figure ring-bytes = COMMAND" (exact on any machine), or "figure loss ~1e-4 COMMAND".
# usage: labs/course/figures.sh write|check LAB...     check: exit status 1 where an exact figure is another one
set -u
. labs/course/conf.sh
what=$1
shift
bad=0
for lab; do
    folder=$(lab_folder "$lab") || exit 2
    sheets=$(ls "$folder"/README*.md)
    labs/course/build.sh planted "$lab" "$BUILD/labs/$lab" || exit 1
    conf_lines "$folder" figure >"$BUILD/figures.$$"
    while read -r name mark command <&3; do
        value=$(sh -c "$command" 3<&-) || { echo "$folder: figure $name: the command failed: $command"; bad=1; continue; }
        for sheet in $sheets; do
            grep -q "<!-- $name -->" "$sheet" || { echo "$sheet has no place for figure $name"; bad=1; continue; }
            NAME=$name SHOWN="$value ${mark%%[!=~]*}" awk '
                { while (match($0, "<!-- " ENVIRON["NAME"] " -->[^<]*<!-- / -->")) {
                      printf "%s<!-- %s --\003>%s<!-- / -->", substr($0, 1, RSTART - 1), ENVIRON["NAME"], ENVIRON["SHOWN"]
                      $0 = substr($0, RSTART + RLENGTH) }
                  print }' "$sheet" | tr -d '\003' >"$sheet.new"
            if cmp -s "$sheet" "$sheet.new"; then
                rm "$sheet.new"
            elif [ "$what" = write ]; then
                mv "$sheet.new" "$sheet"
            else
                rm "$sheet.new"
                case $mark in "="*) echo "$sheet: figure $name is $value here: make lab-figures" && bad=1 ;; esac
            fi
        done
    done 3<"$BUILD/figures.$$"
    rm -f "$BUILD/figures.$$"
done
exit $bad
