#!/bin/sh
# The numbers in the labs' sheets, from the labs' own commands. In a sheet they are between invisible marks:
#     each rank sends <!-- ring-bytes -->1,835,008 =<!-- / --> bytes
# and lab.conf has their commands: "figure ring-bytes = COMMAND" (exact on any machine), "figure loss ~0.001 COMMAND"
# (on another machine it may differ by this bound, which the sheet also states), or "figure faster ~ COMMAND" (a word
# that may differ).
# usage: labs/course/figures.sh write|check LAB...     check: exit status 1 if a figure differs from the sheet's by more than its bound
set -u
. labs/course/conf.sh
what=$1
shift
bad=0

# holds SHEET NAME MARK VALUE: whether each occurrence of the figure in the sheet has this value, within the mark's
# bound, and that mark
holds() {
    grep -o "<!-- $2 -->[^<]*<!-- / -->" "$1" | MARK=$3 VALUE=$4 awk '
        { text = $0; sub(/^<!-- [^ ]* -->/, "", text); sub(/<!-- .*/, "", text)
          mark = text; sub(/.* /, "", mark); sub(/ [^ ]*$/, "", text)
          bound = substr(ENVIRON["MARK"], 2); far = text - ENVIRON["VALUE"]; if (far < 0) far = -far
          if (mark != ENVIRON["MARK"] || (bound == "" ? mark == "=" && text != ENVIRON["VALUE"] : text == "" || ENVIRON["VALUE"] !~ /^-?[0-9.]/ || far > bound + 0)) bad = 1
          seen = 1 }
        END { exit bad || !seen }'
}

for lab; do
    folder=$(lab_folder "$lab") || exit 2
    sheets=$(ls "$folder"/README*.md)
    labs/course/build.sh planted "$lab" "$BUILD/labs/$lab" || exit 1
    conf_lines "$folder" figure >"$BUILD/figures.$$"
    while read -r name mark command <&3; do
        value=$(sh -c "$command" 3<&-) && [ -n "$value" ] || { words figure-failed "$folder" "$name" "$command"; bad=1; continue; }
        for sheet in $sheets; do
            grep -q "<!-- $name -->" "$sheet" || { words figure-no-place "$sheet" "$name"; bad=1; continue; }
            if [ "$what" = check ]; then
                holds "$sheet" "$name" "$mark" "$value" || { words figure-other "$sheet" "$name" "$value"; bad=1; }
                continue
            fi
            NAME=$name SHOWN="$value $mark" awk '
                { while (match($0, "<!-- " ENVIRON["NAME"] " -->[^<]*<!-- / -->")) {
                      printf "%s<!-- %s --\003>%s<!-- / -->", substr($0, 1, RSTART - 1), ENVIRON["NAME"], ENVIRON["SHOWN"]
                      $0 = substr($0, RSTART + RLENGTH) }
                  print }' "$sheet" | tr -d '\003' >"$sheet.new"
            if cmp -s "$sheet" "$sheet.new"; then rm "$sheet.new"; else mv "$sheet.new" "$sheet"; fi
        done
    done 3<"$BUILD/figures.$$"
    rm -f "$BUILD/figures.$$"
done
exit $bad
