#!/bin/sh
# `make gpu-bundle`: builds BUILD/gpu-bundle, and the same as .tar.gz, for a GPU machine that has a driver, CUDA's libraries and no network.
# usage: labs/bench/gpu_bundle/bundle.sh BUILD CHIPS FILE...      (CHIPS: CUDA_ARCH; FILE: programs, plug-ins and tests below BUILD)
#
# Files keep their relative paths: programs look for plug-ins in lib/ beside them, tests for data/ and tests/golden in the current folder. The
# bundle includes all libraries that the files need, directly or indirectly, except the C library, the C++ runtime (every Debian and Ubuntu has
# both), and CUDA's and NCCL's own, which run.sh looks for on the GPU machine.
set -u
export LC_ALL=C
most_bytes=44000000
glibc_most=2.35 # Ubuntu 22.04's
glibcxx_most=3.4.30
fail() { echo "gpu-bundle: $*" >&2; exit 1; }
[ $# -ge 2 ] || fail 'usage: bundle.sh BUILD CHIPS FILE...'
build=$1 chips=$2
shift 2
[ $# -gt 0 ] || fail 'nvcc was not found (make help says what was): a bundle for GPUs needs CUDA 12 or 13 where it is made'
cd "$(dirname "$0")/../../.." || exit 1
bundle=$build/gpu-bundle
made=$bundle.new
rm -rf "$made"
trap 'rm -rf "$made"' EXIT
trap 'exit 130' INT TERM HUP

# --- programs, plug-ins, tests ------------------------------------------------------------------------------------------
for file in "$@"; do
    place=$made/build/${file#"$build"/}
    mkdir -p "$(dirname "$place")" && strip -o "$place" "$file" || fail "cannot strip $file into $made"
done
! objdump -p $(find "$made/build" -type f) | grep -q 'NEEDED.*libcuda_on_cpu' || fail "a test is linked with the CPU's CUDA (GPU_TESTS in the Makefile)"

# --- libraries ------------------------------------------------------------------------------------------------------------
mkdir -p "$made/lib"
of_the_machine='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libnccl|ls_cuda|libls_tests)\.so'
find "$made/build" -type f -exec ldd {} + >"$made/needs" 2>&1 || fail "ldd cannot read what was built: $(tail -n 1 "$made/needs")"
awk '$2 == "=>" { print $1, $3 }' "$made/needs" | sort -u | grep -vE "$of_the_machine" >"$made/libraries"
while read -r name path; do
    [ "$path" != not ] || fail "$name, which the programs need, is not on this machine"
    cp -L "$path" "$made/lib/$name" || exit 1
done <"$made/libraries"
rm "$made/needs" "$made/libraries"

# --- what they read -------------------------------------------------------------------------------------------------------
cp labs/bench/gpu_bundle/run.sh "$made/" && cp -r data LICENSE "$made/" && mkdir -p "$made/tests" "$made/plots" &&
    cp -r tests/golden "$made/tests/" && cp -r plots/reference "$made/plots/" || exit 1
for room in bench/gpu_check bench/shared bench/peers replay/nodes replay/workloads; do # scripts and tables, not sources
    mkdir -p "$made/labs/$room"
    find "labs/$room" -maxdepth 1 -type f ! -name '*.[ch]' -exec cp {} "$made/labs/$room/" \;
done

# --- how old a machine may be ---------------------------------------------------------------------------------------------
# The newest version of PREFIX that any file in the bundle requires: "2.34 build/dp_train".
newest() {
    for file in $(cd "$made" && find build lib -type f | sort); do
        objdump -p "$made/$file" | awk -v file="$file" -v prefix="$1" '
            /^Version definitions:/ { needed = 0 } /^Version References:/ { needed = 1 }
            needed && $4 == "GLIBC_ABI_DT_RELR" && prefix == "GLIBC" { print "2.36", file }
            needed && index($4, prefix "_") == 1 { version = substr($4, length(prefix) + 2); if (version ~ /^[0-9.]+$/) print version, file }'
    done | sort -k1,1V -s | awk '$1 != last { first = $0; last = $1 } END { print first }'
}
# later A B: whether version A is later than B
later() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]; }
glibc=$(newest GLIBC) glibcxx=$(newest GLIBCXX)
asked_for() { objdump -T "$made/${2#* }" | sed -n "s/.*($1_${2% *}) *//p" | head -n 3 | tr '\n' ' '; }
if later "${glibc% *}" $glibc_most; then
    echo "gpu-bundle: needs glibc ${glibc% *}, later than Ubuntu 22.04's $glibc_most: ${glibc#* } asks for $(asked_for GLIBC "$glibc")" >&2
fi
if later "${glibcxx% *}" $glibcxx_most; then
    echo "gpu-bundle: needs libstdc++ of GLIBCXX_${glibcxx% *}, later than Ubuntu 22.04's $glibcxx_most: ${glibcxx#* }" >&2
fi
printf '%s\n' "glibc ${glibc% *}" "GLIBCXX ${glibcxx% *}" "chips $chips" "commit $(git describe --always --dirty 2>/dev/null || echo unknown)" >"$made/made-of"

# --- the folder, the archive, and what is in them ---------------------------------------------------------------------------
rm -rf "$bundle" "$bundle.tar.gz"
mv "$made" "$bundle" || exit 1
tar -C "$build" --sort=name --owner=0 --group=0 --numeric-owner -I 'gzip -9' -cf "$bundle.tar.gz" gpu-bundle || exit 1
archive_bytes=$(stat -c %s "$bundle.tar.gz")
names() { (cd "$bundle/$1" && find . -maxdepth 1 -type f ${2:-} | sed 's|^\./||' | sort | tr '\n' ' '); }
megabytes() { echo "$1" | awk '{ printf "%.1f MB", $1 / 1e6 }'; }
cat <<SAID
$bundle.tar.gz, $(megabytes "$archive_bytes"); unpacked in $bundle, $(megabytes "$(du -sb "$bundle" | cut -f1)"):
  build        $(names build)
  build/lib    $(names build/lib)(sm_$(echo "$chips" | sed 's/ /, sm_/g'))
  build/tests  $(names build/tests)
  lib          $(names lib)
  labs         $(cd "$bundle/labs" && find . -type f | sed 's|^\./||' | sort | tr '\n' ' ')
  and          data, tests/golden, plots/reference ($(find "$bundle/data" "$bundle/tests" "$bundle/plots" -type f | wc -l) files)
runs with glibc ${glibc% *} and libstdc++ ${glibcxx% *} (GLIBCXX) or later, beside $(find "$bundle/build" -name '*.so' -exec ldd {} + |
    sed -nE 's/^\t(lib(cudart|cublas|nccl)\.so[^ ]*) .*/\1/p' | sort -u | tr '\n' ' ')and a driver for them
there: tar xzf gpu-bundle.tar.gz && gpu-bundle/run.sh
SAID
[ "$archive_bytes" -lt $most_bytes ] || fail "$bundle.tar.gz has $archive_bytes bytes; $most_bytes is the most"
