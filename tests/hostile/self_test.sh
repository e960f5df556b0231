#!/bin/sh
# Plants a defect for each area in front of the programs, and fails unless the area reports it.
# usage: tests/hostile/self_test.sh BUILD [AREA...]
set -u
here=$(dirname "$0")
[ $# -ge 1 ] && [ -x "$1/ddp_train" ] || { echo 'usage: tests/hostile/self_test.sh BUILD [AREA...]' >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 1
shift
[ $# -gt 0 ] || set -- kills restarts mismatches launchers settings attacks damaged options files signals grids elastic
stubs=$build/hostile_stubs
trap 'rm -rf "$stubs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The script that replaces dp_train and ddp_train; $program is the real one.
defect_of() { # area
    case $1 in
    kills) echo 'for word; do case $word in --save=*) [ ! -s "${word#*=}" ] || set -- "$@" --lr=0.002 ;; esac; done' ;; # not the checkpoint alone counts
    restarts) echo 'case ${TORCHELASTIC_RESTART_COUNT:-0} in 0) ;; *) set -- "$@" --seed=1 ;; esac' ;;           # another order after a restart
    mismatches) echo 'case $* in *--help*) ;; *) exit 0 ;; esac' ;;                                                # trains on
    launchers) echo 'unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID SLURM_STEP_ID RANK WORLD_SIZE' ;; # worlds of one
    settings) echo '"$program" "$@" 2>/dev/null; exit $?' ;;                                                      # names nothing
    attacks) echo 'case ${RANK:-} in ?*) set -- "$@" --seed=1 ;; esac' ;;                                           # other weights
    damaged) echo '"$program" "$@" || kill -SEGV $$; exit 0' ;;                                                     # crashes
    options) echo '"$program" "$@"; status=$?; [ $status -eq 0 ] || echo "and more" >&2; exit $status' ;;           # two lines
    files) echo '"$program" "$@" 2>/dev/null; exit 0' ;;                                                            # silent
    grids) echo 'case $* in *--steps=2*) ;; *) exec "$program" "$@" 2>/dev/null ;; esac' ;;                         # no names
    elastic) echo 'case $* in *--elastic*) set -- "$@" --seed=1 ;; esac' ;;                                           # other weights than by checkpoints
    signals) echo 'trap "" TERM HUP INT; "$program" "$@"; exit 1' ;;                                                # continues
    esac
}

missed=0
for area in "$@"; do
    rm -rf "$stubs" && mkdir -p "$stubs" && ln -s "$build"/* "$stubs/" || exit 1
    for program in dp_train ddp_train; do
        rm "$stubs/$program"
        printf '#!/bin/sh\nprogram=%s/%s\n%s\nexec "$program" "$@"\n' "$build" $program "$(defect_of "$area")" >"$stubs/$program"
        chmod +x "$stubs/$program"
    done
    rm -f "$stubs/hostile"
    if HOSTILE_SECONDS=0 HOSTILE_MOST=1 "$here/hostile.sh" "$stubs" "$area" >"$stubs/said" 2>&1 || ! grep -q '  again: ' "$stubs/said"; then
        echo "self-test: a defect was not found: $area"
        missed=1
    else
        sed -n "s/^$area [0-9]*: /self-test: found: $area: /p" "$stubs/said" | head -n 1 | cut -c -160
    fi
done
exit $missed
