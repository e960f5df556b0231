#!/bin/sh
# Tests the files of `make install` as a user would: staged into DESTDIR, moved, used from another folder; a program
# built with pkg-config in C and in C++, with the shared library and with the static one, alone and as ranks of ddprun;
# then uninstalled.
# usage: library/check.sh BUILD
set -eu
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
say() { printf '  %s\n' "$*"; }
refuse() { printf 'install-check: %s\n' "$*" >&2 && exit 1; }
unset LS_PLUGINS || true
plugins=$(cd "$build/lib" 2>/dev/null && ls ls_*.so 2>/dev/null || true)

make BUILD="$build" DESTDIR="$folder/stage" PREFIX=/opt/lockstep install >/dev/null
mv "$folder/stage/opt/lockstep" "$folder/moved"
at=$folder/moved
export PKG_CONFIG_PATH="$at/lib/pkgconfig"
mkdir "$folder/elsewhere" && cd "$folder/elsewhere"

"$at/bin/dp_train" --device-kind cpu --devices 1 --epochs 1 --quiet >trained || refuse 'dp_train does not find data/digits from another folder'
"$at/bin/ddprun" --nproc-per-node 2 "$at/bin/ddp_train" --device-kind cpu --steps 5 >trained || refuse 'ddprun and ddp_train fail'
"$at/bin/replay" --node dgx1-v100 --workload resnet50 --mode ddp --n 2 --per-device-batch 32 >replayed 2>&1 || refuse 'replay does not find its nodes or workloads'
"$at/bin/replay" --node dgx1-v100 --workload resnet50 --n 1,2 --per-device-batch 32 --out=drawn --quiet >replayed
GNUPLOT_LIB=$at/share/lockstep gnuplot -c "$at/share/lockstep/plots/speedup.gp" drawn/replay.csv drawn >replayed 2>&1
[ -s drawn/speedup.png ] || refuse 'gnuplot draws nothing with the installed scripts'
for page in "$at"/share/man/man1/*.1; do
    man --warnings -l "$page" >shown 2>warnings || [ $? = 127 ] || refuse "man cannot show $page"
    [ ! -s warnings ] || refuse "man warns of $page: $(head -1 warnings)"
done
for plugin in $plugins; do # each that was built is found there
    case $plugin in
    ls_mpi.so) "$at/bin/ddprun" --nproc-per-node 2 "$at/bin/ddp_train" --device-kind cpu --backend mpi --steps 5 >trained ;;
    ls_cuda.so) "$at/bin/dp_train" --devices 1 --steps 1 | grep -E '[(]no GPU: | GPU' >trained ;; # it was looked for there
    *) [ -e "$at/lib/lockstep/$plugin" ] ;;
    esac || refuse "the installed programs do not find $plugin"
done
say 'programs run from another folder, with their data, nodes, plug-ins and manuals'

cp "$at"/share/lockstep/examples/* .
env -u MAKEFLAGS -u MAKELEVEL make -s own_program
wanted=$(./own_program)
say "own_program: $wanted"
cat >both.cpp <<'EOF'
#include <cstdio>
#include <lockstep.h>
int main() { std::printf("%s\n", ls_version()); }
EOF
c++ -Wall -Wextra -Werror both.cpp $(pkg-config --cflags --libs lockstep) -o both && ./both >version
[ "$(cat version)" = "$(pkg-config --modversion lockstep)" ] || refuse 'the library has another version than its pkg-config file'
cc -O2 own_program.c $(pkg-config --cflags lockstep) -Wl,--whole-archive "$at/lib/liblockstep.a" -Wl,--no-whole-archive \
    $(pkg-config --static --libs lockstep | sed 's/-llockstep//') -lm -o own_static
[ "$(./own_static)" = "$wanted" ] || refuse 'the static library trains to other bits'
cat >opened.c <<'EOF'
#include <dlfcn.h>
#include <lockstep.h>
#include <stdio.h>
/* A rank that opens the library for itself alone, as interpreters do: LIBRARY OPTION... */
int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    __typeof__(&ls_run_create) create = (__typeof__(&ls_run_create))dlsym(library, "ls_run_create");
    __typeof__(&ls_run_train) train = (__typeof__(&ls_run_train))dlsym(library, "ls_run_train");
    __typeof__(&ls_run_error) error = (__typeof__(&ls_run_error))dlsym(library, "ls_run_error");
    ls_run *run;
    int status = create(&run, LS_MODE_DDP, (const char *const *)argv + 2);
    if (status == 0) status = train(run, NULL);
    if (status != 0) fprintf(stderr, "%s\n", error(run));
    return status;
}
EOF
library=$at/lib/liblockstep.so
cc opened.c $(pkg-config --cflags lockstep) -ldl -o opened && ./opened "$library" --device-kind cpu --steps 2 ||
    refuse 'a program that opens liblockstep.so by dlopen cannot train'
case $plugins in *ls_mpi.so*)
    "$at/bin/ddprun" --nproc-per-node 2 ./opened "$library" --device-kind cpu --steps 2 --backend mpi ||
        refuse 'plug-ins do not find the names of a library that was opened by dlopen' ;;
esac
say 'C, C++, shared and static: the same bits; opened by dlopen it trains, with its plug-ins'
nm -D --defined-only "$at/lib/liblockstep.so" | awk '$3 !~ /@@LOCKSTEP_(1|PRIVATE)$/ && $2 != "A"' >stray
[ ! -s stray ] || refuse "liblockstep.so shows $(head -1 stray)"

cd - >/dev/null
mkdir -p "$folder/opt" && mv "$at" "$folder/opt/lockstep"
make BUILD="$build" DESTDIR="$folder" PREFIX=/opt/lockstep uninstall >/dev/null
left=$(find "$folder/opt" ! -type d)
[ -z "$left" ] || refuse "make uninstall leaves $left"
say 'uninstalled: nothing is left'
