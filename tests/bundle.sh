#!/bin/sh
# `make bundle-check`: unpacks the bundle of `make gpu-bundle` in a separate root, which has only the C and C++ runtime,
# a shell and the tools of a bare Debian, and runs it there: on CPU devices, and on the GPUs of tests/cuda_on_cpu in
# place of CUDA's libraries.
# Then it removes the bundle's libraries, one at a time: the programs must fail without each, or the root was not bare.
# usage: tests/bundle.sh ARCHIVE CUDA_ON_CPU      (as root, or as any user if the kernel allows user namespaces)
#        tests/bundle.sh --allowed      checks, before a bundle is built, whether this machine allows it
set -u
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin" # chroot, for a user
[ $# -eq 2 ] || [ "$*" = --allowed ] || { echo 'usage: tests/bundle.sh ARCHIVE CUDA_ON_CPU' >&2; exit 2; }
fail() { echo "bundle-check: $*" >&2; exit 1; }

# Some machines (AppArmor) allow a namespace but no mount in it, so this tries both.
is_allowed() { "$@" sh -c 'mount --rbind /proc /proc && chroot / true' 2>/dev/null; }
if [ "$(id -u)" -eq 0 ] && is_allowed unshare -m; then
    namespace='unshare -m'
elif is_allowed unshare -r -m; then
    namespace='unshare -r -m'
else
    fail 'this machine forbids mount namespaces (a container without --privileged, or a kernel without user namespaces): the bundle was NOT checked; run it as root outside of a container'
fi
[ "$1" != --allowed ] || exit 0
archive=$(realpath "$1") fakes=$(realpath "$2")
[ -r "$archive" ] || fail "there is no $archive"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM HUP

# --- a bare root --------------------------------------------------------------------------------------------------------
tools='sh bash env ls cat cp mv rm mkdir chmod ln readlink realpath dirname basename sort uniq head tail tr cut wc date mktemp timeout sleep nice id nproc seq
    tee uname stat du touch true false test printf echo expr od sha256sum grep sed awk find xargs tar gzip setsid ldd getconf'
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/etc"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
copy_with_libraries() { # FILE, and what it needs, to the same places
    for file in "$1" $(ldd "$1" 2>/dev/null | grep -oE '/[^ ]+'); do
        mkdir -p "$root/$(dirname "$file")" && cp -L "$file" "$root/$file" || exit 1
    done
}
for tool in $tools; do
    path=$(command -v "$tool" 2>/dev/null)
    case $path in /*) ;; *) path=/usr/bin/$tool ;; esac # a built-in command of this shell
    [ -x "$path" ] || fail "there is no $tool on this machine"
    copy_with_libraries "$path"
    [ -e "$root/usr/bin/$tool" ] || mv "$root/$path" "$root/usr/bin/$tool"
done
cp "$(command -v ldconfig || echo /sbin/ldconfig)" "$root/usr/sbin/"
for runtime in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libstdc++.so.6 libgcc_s.so.1; do
    path=$(/sbin/ldconfig -p | sed -n "s|^[[:space:]]*$runtime .* => ||p" | head -n 1)
    [ -z "$path" ] || copy_with_libraries "$path"
done
tar -C "$root" -xzf "$archive" || fail "$archive cannot be unpacked"
ls "$root/gpu-bundle/lib" | grep -q . || fail 'there are no libraries in the bundle'
for library in $(ls "$root/gpu-bundle/lib"); do
    [ -z "$(find "$root/usr" -name "$library")" ] || fail "the root is not bare: a tool needs $library"
done

# --- CUDA on the CPU, in place of a toolkit, a driver and Python's wheels ---------------------------------------------
mkdir -p "$root/usr/local/cuda-13.7/lib64" "$root/wheels/nvidia/cu13/lib" "$root/driver" "$root/elsewhere"
cp "$fakes/ls_cuda.so" "$fakes/ls_nccl.so" "$root/elsewhere/"
cp "$fakes/libcuda_on_cpu.so" "$root/usr/local/cuda-13.7/lib64/"
: >"$root/driver/libcuda.so.1" # it is only looked for

# --- the runs in the bare root ----------------------------------------------------------------------------------------
cat >"$root/inside.sh" <<'INSIDE'
cd /gpu-bundle || exit 1
# try TEXT COMMAND...: the command must succeed and print TEXT.
try() {
    text=$1
    shift
    timeout -k 5 120 "$@" >/tmp/said 2>&1 </dev/null
    status=$?
    grep -qF -- "$text" /tmp/said && [ $status -eq 0 ] && return
    echo "bundle-check: in the bare root: $*: exit status $status, without \"$text\":" >&2
    tail -n 20 /tmp/said >&2
    exit 1
}
# refuse TEXT COMMAND...: the command must fail and print TEXT.
refuse() {
    text=$1
    shift
    timeout -k 5 120 "$@" >/tmp/said 2>&1 </dev/null
    status=$?
    [ $status -ne 0 ] && grep -qF -- "$text" /tmp/said && return
    echo "bundle-check: in the bare root: $*: exit status $status, and not one line with \"$text\":" >&2
    tail -n 20 /tmp/said >&2
    exit 1
}
hash_of() { sed -n 's/.*weights \([0-9a-f]\{16\}\).*/\1/p' /tmp/said | tail -n 1; }
short='--model mlp --steps 3 --batch-size 64 --no-evaluate --quiet'

# CPU devices. CUDA is missing; a message says so, and nothing else fails.
refuse 'libcuda.so.1' ./run.sh --look
try 'not found here' ./run.sh --do build/dp_train $short
try '' ./run.sh --do build/ddp_train --spawn 2 $short
try '--node' ./run.sh --do build/replay --help

# GPUs: the plug-ins of tests/cuda_on_cpu replace ours, and their library that of a toolkit.
cp /elsewhere/*.so build/lib/
export CUDA_ON_CPU_DEVICES=1 LD_LIBRARY_PATH=/driver:/nowhere
try '/usr/local/cuda-13.7/lib64' ./run.sh --look
try ':/driver:/nowhere' ./run.sh --look
try 'PASSED' ./run.sh --do build/tests/test_scaler
try '' ./run.sh --do build/dp_train --device-kind cuda --single $short
try '' ./run.sh --do build/ddp_train --device-kind cuda --spawn 2 $short
# The check itself, through run.sh, which fails if anything is broken: its first stage
try 'held' ./run.sh --only look --quick --budget 60 --out /found
try '"stage":"look"' cat /found/gpu_check.jsonl
try "\"commit\":\"$(sed -n 's/^commit //p' made-of)\"" cat /found/gpu_check.jsonl
# Python's wheels, at the path that Python reports.
mv /usr/local/cuda-13.7/lib64/libcuda_on_cpu.so /wheels/nvidia/cu13/lib/
refuse 'not found here: libcuda_on_cpu.so' ./run.sh --look
printf '#!/bin/sh\necho /wheels/nvidia/cu13/lib\n' >/usr/bin/python3 && chmod +x /usr/bin/python3
try '/wheels/nvidia/cu13/lib' ./run.sh --look

# The programs fail without each library.
for library in $(ls lib); do
    mv "lib/$library" /tmp/
    refuse "$library" ./run.sh --do build/tests/test_scaler
    mv "/tmp/$library" lib/
done
echo "bundle-check: in a bare root the bundle trains on CPU devices and on CUDA's stand-in, and misses each of its $(ls lib | wc -l) libraries"
INSIDE

# The mounts end with the namespace.
$namespace sh -c 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/usr/sbin LC_ALL=C TMPDIR=/tmp sh /inside.sh' "$root" ||
    exit 1

# --- the oldest machine that can run it -------------------------------------------------------------------------------
read -r _ glibc <"$root/gpu-bundle/made-of"
[ "$(printf '%s\n' "$glibc" 2.35 | sort -V | tail -n 1)" = 2.35 ] || fail "the bundle needs glibc $glibc; Ubuntu 22.04 has 2.35"
