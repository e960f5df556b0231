#!/bin/sh
# `make gpu-check`: runs build/gpu_check with the plug-ins for real GPUs, CUDA's tools and PyTorch's script.
# usage: labs/bench/gpu_check/gpu_check.sh BUILD [OPTION...] [TEST...]      (options: build/gpu_check --help)
set -eu
build=$(cd "$1" && pwd)
shift
pytorch=$(dirname "$0")/../peers/bench_pytorch_gpu.py
export LC_ALL=C BUILD="$build" LS_PLUGINS="${LS_PLUGINS:-$build/lib}" PATH="$PATH:/usr/local/cuda/bin"
exec "$build/gpu_check" --pytorch="$pytorch" --out="$build/results" "$@"
