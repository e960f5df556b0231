#!/bin/sh
# Measures the tests: plants one small fault (a mutant) at a time into a copy of HEAD, and prints the first test program
# that fails. The programs of the file's own folder run first, then the others, the shortest first; each within 20 s + 4
# times its time without a mutant.
# usage: tests/mutants.sh [--only K] SEED COUNT [PATH...]  # COUNT mutants, or the K-th, of the C files below common dp_threads ddp_procs kernels/cpu (or PATHs)
#        tests/mutants.sh PATCH...                         # mutants that an earlier run kept, possibly of another tree
# A mutant that does not compile, or does not change the object code, is replaced by another. MUTANTS_JOBS: mutants at a
# time, one for each core; ROOMS='comm data': only the tests of these folders. Exit status 0 if the tests ran, even if
# mutants survive.
set -u
export LC_ALL=C
[ -d /usr/lib/ccache ] && export PATH="/usr/lib/ccache:$PATH"

# make, quietly, without a GPU: $1 files at a time, and its targets
build() { make HAVE_nvcc= "CORES=$@" >"$scratch/build.$slot" 2>&1; }
fakes='build/tests/cuda_on_cpu/ls_cuda.so build/tests/cuda_on_cpu/ls_nccl.so'

# Makes file into mutant $1, try $2; fails if a kept patch does not apply
apply() {
    git checkout -q .
    [ -e "$scratch/sites" ] || { git apply "$scratch/$1.patch" && file=$(git diff --name-only); return; }
    sed -n "$((($1 - 1 + 1000 * $2) % $(wc -l <"$scratch/sites") + 1))p" "$scratch/sites" >"$scratch/site.$slot"
    file=$(cut -f 1 "$scratch/site.$slot") change=$(awk -F '\t' '{ printf ":%d `%s` -> `%s`", $2, $4, $5 }' "$scratch/site.$slot")
    awk -F '\t' 'NR == FNR { line = $2; at = $3; end = at + length($4); new = $5; next }
        { print FNR == line ? substr($0, 1, at - 1) new substr($0, end) : $0 }' "$scratch/site.$slot" "$file" >"$scratch/file.$slot"
    cat "$scratch/file.$slot" >"$file"
    git diff >"$scratch/$1.patch"
}

# Whether the mutant compiles, to other object code than in the unchanged tree.0; debug information is not compared
matters() {
    objects=$(cd ../tree.0 && find build/obj -path "*/${file%/*}/*" -name "$(basename "$file" .c).o")
    build 1 $objects || { why='does not compile'; return 1; }
    for object in $objects; do
        objcopy -g "../tree.0/$object" "$scratch/old.$slot" && objcopy -g "$object" "$scratch/new.$slot"
        cmp -s "$scratch/old.$slot" "$scratch/new.$slot" || return 0
    done
    why='same object code'
    return 1
}

# Prints which program fails, if one does, and how
catcher() {
    room=$(dirname "$file" | awk -F / '{ for (i = NF; i; i--) print $i }' | while read -r part; do [ -d "tests/$part" ] && echo "$part" && break; done)
    rm -rf "$runs" && mkdir "$runs" && : >"$runs/skips"
    while read -r _ name; do [ -e "tests/$room/$name.c" ] && echo "$name"; done <"$scratch/programs" >"$runs/near"
    { xargs <"$runs/near"; cut -d ' ' -f 2 "$scratch/programs" | grep -vxFf "$runs/near" | xargs -n 24; } | while read -r names; do
        build 1 all $fakes $(printf 'build/tests/%s ' $names) || { echo 'the build'; break; }
        for name in $names; do
            LS_TEST_DEADLINE_S=$(awk -v name="$name" '$2 == name { print int(20 + 4 * $1) }' "$scratch/programs") \
                env --default-signal=INT,QUIT tests/run.sh --one "$runs" "build/tests/$name" >"$runs/said" # a background job's are ignored
            awk '$2 > 0 { exit 1 }' "$runs/counts" && ! grep -qvxFf tests/allowed_skips "$runs/skips" && continue
            echo "$name $(sed -n 's/^\[  FAILED  \] \([a-z_0-9]*\)$/\1/p' "$runs/$name.log" | head -n 1)$(grep -o ': killed by.*\|: no end.*' "$runs/said")"
            break 2
        done
    done
}

# Takes mutants that no other worker has taken, and runs them in tree.$slot
work() {
    runs=$scratch/runs.$slot change=''
    cd "$scratch/tree.$slot" && git update-index -q --refresh && export LS_PLUGINS="$PWD/build/tests/cuda_on_cpu" CUBLAS_WORKSPACE_CONFIG=:64:1 || return
    for k in $mutants; do
        mkdir "$scratch/taken.$k" 2>/dev/null || continue
        try=0
        while apply "$k" $try && ! matters; do
            echo "$k $file$change, $why: $([ -e "$scratch/sites" ] && echo drawn anew)"
            [ -e "$scratch/sites" ] && try=$((try + 1)) || continue 2
        done
        start=$(date +%s) by=$(catcher)
        echo "$k $file$change, ${by:+caught by }${by:-SURVIVED}, $(($(date +%s) - start)) s" | tee -a "$scratch/mutants"
    done
}

only='' slot=0
[ "${1:-}" = --only ] && [ $# -gt 1 ] && { only=$2; shift 2; }
[ $# -gt 0 ] || { sed -n '4,5s/^# //p' "$0" >&2; exit 2; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/mutants.XXXXXX") || exit 1
trap 'rm -rf "$scratch"/tree.*' EXIT
trap 'exit 130' INT TERM
if [ -f "$1" ]; then
    mutants=$(seq $#)
    for k in $mutants; do cp "$1" "$scratch/$k.patch" && shift || exit 1; done
else
    seed=$1 mutants=${only:-$(seq "${2:?how many mutants}")}
    shift 2
    [ $# -gt 0 ] || set -- common dp_threads ddp_procs kernels/cpu
    git ls-files -- "$@" | grep '\.c$' | xargs awk -v seed="$seed" -f tests/mutants.awk | sort -n | cut -f 2- >"$scratch/sites"
fi
git clone -q . "$scratch/tree.0" && cd "$scratch/tree.0" || exit 1
tests=$(printf 'tests/%s/test_*.c ' ${ROOMS:-'*'})
build "$(nproc)" all $fakes $(basename -s .c $tests | sed 's|^|build/tests/|') || { tail "$scratch/build.0"; exit 1; }
make test HAVE_nvcc= V=1 "ROOMS=${ROOMS:-*}" >"$scratch/unchanged" 2>&1 || { tail "$scratch/unchanged"; echo 'Tests fail without a mutant'; exit 1; }
awk '$3 == "passed" { print $(NF - 2), $1 }' "$scratch/unchanged" | sort -n >"$scratch/programs"
echo "$(wc -l <"$scratch/programs") programs pass without a mutant$([ -e "$scratch/sites" ] && echo ", of which $(wc -l <"$scratch/sites") could be drawn"); $scratch/K.patch is number K"
for slot in $(seq "${MUTANTS_JOBS:-$(nproc)}"); do
    cp -a "$scratch/tree.0" "$scratch/tree.$slot"
    work &
done
wait
awk '/SURVIVED/ { survived++ } END { printf "%d mutants: %d caught, %d survived\n", NR, NR - survived, survived }' "$scratch/mutants"
