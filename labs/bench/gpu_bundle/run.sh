#!/bin/sh
# Runs lockstep from this folder, on a machine that has a GPU, its driver and CUDA's libraries; nothing else is required.
# usage: run.sh [OPTION...]        checks and measures the GPU; options are the check's: --budget SECONDS, --only STAGE, --out DIR
#        run.sh --do COMMAND...    any program: run.sh --do build/dp_train --device-kind cuda --steps 100 (in this folder, for data/digits)
#        run.sh --look             only says where the libraries are found
# CUDA's and NCCL's libraries are taken from where the loader finds them (LD_LIBRARY_PATH, the system), else from CUDA_HOME, a toolkit, the
# driver's folder, or the nvidia wheels of Python. These folders are prepended to LD_LIBRARY_PATH.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
from=$PWD
export LS_PLUGINS="${LS_PLUGINS:-$here/build/lib}" LS_COMMIT="$(sed -n 's/^commit //p' "$here/made-of")" # figures name the commit

# --- where libraries lie ------------------------------------------------------------------------------------------------
# Folders that may contain the libraries, the likeliest first.
list_folders() {
    for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$(nvcc=$(command -v nvcc) && dirname "$(dirname "$(readlink -f "$nvcc")")")" \
        /usr/local/cuda $(ls -d /usr/local/cuda-* /opt/nvidia/hpc_sdk/Linux_*/*/cuda 2>/dev/null | sort -rV); do
        [ -z "$home" ] || printf '%s\n' "$home/lib64" "$home/lib" "$home/targets/$(uname -m)-linux/lib"
    done
    printf '%s\n' /usr/local/nvidia/lib64 /usr/local/nvidia/lib "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64 /usr/lib/wsl/lib /run/opengl-driver/lib
    ls -d /usr/lib/nvidia* /usr/lib64/nvidia* /opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/nccl/lib 2>/dev/null
    for python in python3 python; do
        command -v "$python" >/dev/null && timeout 60 "$python" -c '
import glob, importlib.util as u
spec = u.find_spec("nvidia")
for folder in (spec.submodule_search_locations if spec else []): print("\n".join(sorted(glob.glob(folder + "/*/lib"), reverse=True)))' 2>/dev/null
    done
}

# The libraries that plug-ins and programs need and the loader does not find, with the present LD_LIBRARY_PATH.
list_missing() {
    LC_ALL=C ldd "$here"/build/lib/*.so "$here"/build/dp_train "$here"/build/tests/* 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u
    has_driver || echo libcuda.so.1
}
has_driver() {
    { /sbin/ldconfig -p || ldconfig -p; } 2>/dev/null | grep -q 'libcuda\.so\.1 ' && return
    for folder in $(echo "$LD_LIBRARY_PATH" | tr ':' ' ') "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64; do
        [ -e "$folder/libcuda.so.1" ] && return
    done
    return 1
}

# Prepends the first folder that has the library to LD_LIBRARY_PATH.
add_folder_of() {
    while read -r folder; do
        [ -e "$folder/$1" ] || continue
        LD_LIBRARY_PATH=$folder:$LD_LIBRARY_PATH
        return
    done <<FOLDERS
$folders
FOLDERS
}

export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
missing=$(list_missing)
if [ -n "$missing" ]; then
    folders=$(list_folders | awk '!seen[$0]++')
    for turn in 1 2 3; do # libraries that were found may need others
        before=$LD_LIBRARY_PATH
        for library in $missing; do add_folder_of "$library"; done
        missing=$(list_missing)
        [ -n "$missing" ] && [ "$before" != "$LD_LIBRARY_PATH" ] || break
    done
fi
if [ -n "$missing" ]; then
    echo "run.sh: not found here:" $missing "(what needs them cannot run; if they lie elsewhere, name the folder in LD_LIBRARY_PATH)" >&2
fi

# Prints each library of CUDA and NCCL, and its path.
look() {
    LC_ALL=C ldd "$here"/build/lib/*.so | sed -nE 's/^[[:space:]]*(lib(cu|nccl)[^ ]*) => ([^ ]*).*/\1 \3/p' | sort -u
    has_driver && echo 'libcuda.so.1 (the driver) is there'
    echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
}

# --- what is run ----------------------------------------------------------------------------------------------------------
case ${1:-} in
--do)
    shift
    [ $# -gt 0 ] || { echo "usage: $0 --do COMMAND..." >&2; exit 2; }
    exec "$@"
    ;;
--look)
    look
    [ -z "$missing" ]
    exit
    ;;
esac

# compute-sanitizer and nvidia-smi are in the toolkit's folder.
for bin in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda-*/bin; do [ -d "$bin" ] && PATH=$PATH:$bin; done
export PATH
look

# The check runs in this folder; relative paths are relative to the folder in which run.sh was called.
absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s' "$from/$1" ;; esac }
last=''
for word; do
    shift
    case $last in --out | --summary | --reference) word=$(absolute "$word") ;; esac
    case $word in --out=* | --summary=* | --reference=*) word=${word%%=*}=$(absolute "${word#*=}") ;; esac
    last=$word
    set -- "$@" "$word"
done
cd "$here" || exit 1
exec labs/bench/gpu_check/gpu_check.sh build "$@" build/tests/test_*
