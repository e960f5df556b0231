#!/bin/sh
# Installs programs, library, manuals and the data that programs read below a folder, and prints where each is.
# usage: library/install.sh TO BUILD VERSION SONAME LIBRARIES programs FILE... plugins FILE... shipped FOLDER...
set -eu
to=$1 build=$2 version=$3 soname=$4 libraries=$5
shift 5
mkdir -p "$to/bin" "$to/include" "$to/lib/pkgconfig" "$to/lib/lockstep" "$to/share/lockstep" "$to/share/man/man1" "$to/share/bash-completion/completions"

part=''
for item; do
    case $item in
    programs | plugins | shipped) part=$item && continue ;;
    esac
    name=${item##*/}
    case $part in
    programs)
        install -m 755 "$item" "$to/bin/$name"
        "$item" --help | awk -v name="$name" -v version="$version" -f library/manual.awk >"$to/share/man/man1/$name.1"
        sed "s/@PROGRAM@/$name/g" library/completion.bash >"$to/share/bash-completion/completions/$name"
        ;;
    plugins) install -m 755 "$item" "$to/lib/lockstep/$name" ;;
    shipped)
        git ls-files -co --exclude-standard "$item" 2>/dev/null | grep . || find "$item" -type f
        ;;
    esac
done | while read -r file; do
    [ -f "$file" ] || continue
    mkdir -p "$to/share/lockstep/${file%/*}"
    install -m 644 "$file" "$to/share/lockstep/$file"
done
install -m 644 include/lockstep.h "$to/include/lockstep.h"
install -m 644 "$build/lib/liblockstep.a" "$to/lib/liblockstep.a"
install -m 755 "$build/lib/$soname" "$to/lib/$soname"
ln -sf "$soname" "$to/lib/liblockstep.so"
sed -e "s/@VERSION@/$version/" -e "s/@LIBRARIES@/$libraries/" library/lockstep.pc.in >"$to/lib/pkgconfig/lockstep.pc"
echo "lockstep $version is in $to: bin, include/lockstep.h, lib/liblockstep, share/lockstep (data, nodes, plots, examples)"
