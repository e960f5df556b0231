#!/bin/sh
# Follows docs/extend as a reader would: in a copy of this tree applies each page's patch, builds, and runs the commands of its blocks
# marked "sh guide". Layer and model build on what comes before; so all of it goes into one copy, one after the other.
# usage: tests/guides.sh BUILD       BUILD: a finished build, whose objects the copy begins with
# Exit status 1: a patch does not apply, something does not build, a command fails, or DP and DDP end with other weights.
set -u
build=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
    echo "guides: $*" >&2
    exit 1
}

git ls-files -co --exclude-standard | while read -r file; do [ -f "$file" ] && echo "$file"; done | tar -cf - -T - | tar -xf - -C "$work" ||
    fail 'the tree cannot be copied'
mkdir "$work/build" && tar -C "$build" --exclude=obj/gpu --exclude=obj/fake -cf - obj | tar -xf - -C "$work/build" || fail "$build cannot be copied"
# what this build made, make takes for newer than the copied sources
find "$work/build" -type f -exec touch {} +
cd "$work" || exit 1

tests=
for page in all-reduce operation layer model; do
    patch -s -p1 <"docs/extend/$page.patch" || fail "docs/extend/$page.patch does not apply"
    tests="$tests $(sed -n '/^```sh guide/,/^```$/p' "docs/extend/$page.md" | grep -o 'build/tests/[a-z_]*' | tr '\n' ' ')"
done
# shellcheck disable=SC2086
make HAVE_nvcc= LS_SET_UP=1 all $tests >make.log 2>&1 || { tail -20 make.log; fail 'the examples do not build'; }

count=0
for page in all-reduce operation layer model; do
    sed -n '/^```sh guide/,/^```$/p' "docs/extend/$page.md" | grep -v '^```' >commands
    while read -r command; do
        sh -c "$command" >said 2>&1 </dev/null || { cat said; fail "docs/extend/$page.md: this fails: $command"; }
        grep -o 'weights [0-9a-f]*' said >>weights
        count=$((count + 1))
    done <commands
done
# ddp_train with chain, then leaky: dp, ddp, bf16
[ "$(sed -n 2p weights)" = "$(sed -n 3p weights)" ] || fail 'DP and DDP train leaky to other weights'
echo "guides: 4 patches apply and build, $count commands work"
