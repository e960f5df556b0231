#!/bin/sh
# Makes the tree for students: without the labs' functions, and with the reference as programs without source.
# usage: labs/course/handout.sh OUT      an empty or missing folder
# Left out: planted bugs, the instructor's page, the course's own checks and that of make's targets, the history. `make`
# builds the handout; programs and tests that call an unwritten function report that.
set -u
. labs/course/conf.sh
refuse_changed_tree
to=$1
[ ! -e "$to" ] || [ -z "$(ls -A "$to" 2>/dev/null)" ] || { echo "$to is not empty" >&2; exit 2; }
mkdir -p "$to" || exit 1
to=$(realpath "$to")

left_out='^(labs/[0-9][0-9]-[^/]*/(bugs\.txt|correct\.txt|planted\.txt|picture\.gp|instructors(\.zh)?\.md)|labs/instructors(\.zh)?\.md|labs/course/((check|pictures|languages|originals|minutes)\.sh|originals$|plant\.awk|cheats/|handout\.(sh|md)|class(_check)?\.sh|Containerfile)|\.ci/|tests/(hostile|hosts)/|tests/labs/test_(course|targets))'
git ls-files | grep -vE "$left_out" | while read -r file; do [ -f "$file" ] && echo "$file"; done | tar -cf - -T - | tar -xf - -C "$to" || exit 1

sed -i -E '/instructors(\.zh)?\.md/d' "$to"/labs/README*.md || exit 1

for lab in $(all_labs); do
    folder=$(lab_folder "$lab")
    sed -i '/^#.*instructors/d; /^cheat /d; /^twin /d; /^picture /d' "$to/$folder"/lab*.conf || exit 1
    for file in $(twin_files "$folder"); do cut_file "$file" "$to/$file" || exit 1; done
    for file in $(cut_files "$folder"); do
        cut_file "$file" "$to/$file" && mkdir -p "$to/reference/handed-out/$(dirname "$file")" && cp "$to/$file" "$to/reference/handed-out/$file" || exit 1
    done
    words building-reference "$lab"
    labs/course/build.sh reference "$lab" "$BUILD/labs/$lab" && labs/course/build.sh planted "$lab" "$BUILD/labs/$lab" || exit 1
    mkdir -p "$to/reference/$lab"
    for name in $(conf_lines "$folder" planted | cut -d' ' -f1); do strip -o "$to/reference/$lab/$name" "$BUILD/labs/$lab/$name" || exit 1; done
    for name in $(conf_lines "$folder" planted-beside | cut -d' ' -f1); do strip --strip-debug -o "$to/reference/$lab/$name.o" "$BUILD/labs/$lab/$name.o" || exit 1; done
    strip -o "$to/reference/$lab/reference" "$BUILD/labs/$lab/reference" && cp "$BUILD/labs/$lab/allowed" "$to/reference/$lab/" || exit 1
done

# The library for linking, without debug information and local names; and the programs, as an oracle.
cp "$COURSE_LIB" "$to/reference/liblockstep.a" && strip --strip-debug --discard-all "$to/reference/liblockstep.a" || exit 1
for program in dp_train ddp_train ddprun bench_comm bench_dp_vs_ddp bench_memory bench_gpt replay fit_tn calibrate hello who_gets who_holds who_hangs visits flight grade course_report; do
    strip -o "$to/reference/$program" "$BUILD/$program" || exit 1
done
# README.md begins with the course.
awk 'NR == 1 { print; while ((getline line <"labs/course/handout.md") > 0) { gsub(/\]\(\.\.\//, "](labs/", line); print line }; next } { print }' README.md >"$to/README.md" || exit 1
cat >"$to/labs/handout.mk" <<'END'
# This tree is a handout: functions that labs ask for are out, and reference/ has them as programs.
COURSE_REFERENCE := reference
UNWRITTEN := -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable
CFLAGS += $(UNWRITTEN)
CXXFLAGS += $(UNWRITTEN)
END
echo "handout: $to ($(du -sh "$to" | cut -f1)); begin with labs/README.md there"
