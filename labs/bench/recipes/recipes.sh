#!/bin/sh
# The course's training scripts as recipes: a recipe is a command line, which is printed so that it can be copied, and a table of its results, beside
# those of the course's script, if we have them. (docs/published.md#the-course says what the course is.)
#
# Without DATA the recipes train on 60,000 warps of the real digits, which mkdigits makes once. That is not MNIST, so the course's losses, which come
# from MNIST, are not reproduced but shown beside ours; PyTorch's losses on the same warps separate the effect of the data from that of our code.
# convnet_reference.csv: column `course` is what the course's script printed as the average loss; the script (a variant of mnist_ddp.py of
# github.com/CSCfi/pytorch-ddp-examples that calls set_epoch) takes the mean over the batches of rank 0 in the epoch. Columns pytorch_rank0 and
# pytorch are the same mean and that of all ranks: PyTorch 1.13 with our digits, made by tests/pytorch/course_convnet.py.
# usage: [DATA=FOLDER] [DEVICE=cpu|cuda] labs/bench/recipes/recipes.sh BUILD_FOLDER RESULTS_FOLDER [RECIPE...]      (DATA: a folder in MNIST's format)
set -u
export LC_ALL=C
fail() { echo "recipes: $*" >&2; exit 1; }
[ $# -ge 2 ] || { echo "usage: $0 BUILD_FOLDER RESULTS_FOLDER [RECIPE...]" >&2; exit 2; }
here=$(dirname "$0")
[ "${LS_STOPPABLE:-}" = "$0" ] || LS_STOPPABLE=$0 exec "$here/../shared/stoppable.sh" "$0" "$@"
build=$1 results=$2
shift 2
[ $# -gt 0 ] || set -- mlp-amp convnet
for recipe in "$@"; do
    case $recipe in mlp-amp | convnet) ;; *) echo "recipes: there is no recipe $recipe; there are mlp-amp and convnet" >&2; exit 2 ;; esac
done
for program in mkdigits dp_train ddp_train; do
    [ -x "$build/$program" ] || fail "there is no $build/$program; run make first"
done

cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | tr -d '",')
cpu=${cpu:-unknown}
cores=$(nproc) date=$(date -u +%F)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$results" || exit 1

# --- what is shared --------------------------------------------------------------------------------------------------

# Sets data, and origin, which describes it.
choose_data() {
    if [ -n "${DATA:-}" ]; then
        for name in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
            [ -r "$DATA/$name" ] || [ -r "$DATA/$name.gz" ] || fail "DATA=$DATA: there is neither $name nor $name.gz"
        done
        data=$DATA origin="the digits in $DATA"
        return
    fi
    data=$build/digits60k origin='60000 warps of 1500 real digits by mkdigits (not MNIST)'
    [ -r "$data/README.md" ] || "$build/mkdigits" "$data" --quiet >/dev/null || exit 1
}

# Prints a command line that can be pasted: words that a shell would split are quoted.
command_text() {
    for word in "$@"; do
        case $word in
        '' | *[!A-Za-z0-9%+,./:=@_-]*) printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
}

# train COMMAND...: prints and runs a command line; its output goes to $work/out, the losses of all steps to $work/losses, and the
# metrics to $work/metrics.
train() {
    [ -z "${DEVICE:-}" ] || set -- "$@" --device-kind "$DEVICE"
    printf '\n %s\n' "$(command_text "$@")"
    "$@" --dump-losses "$work/losses" --metrics "$work/metrics" >"$work/out" || fail 'the run failed; see above'
}

# epoch_losses EPOCHS: a line per epoch with the mean loss of its steps and the loss of its last step
epoch_losses() {
    awk -v epochs="$1" '{ loss[NR] = $1 }
        END { steps = NR / epochs
              for (e = 0; e < epochs; e++) {
                  sum = 0
                  for (s = 1; s <= steps; s++) sum += loss[e * steps + s]
                  printf "%.6f %.6f\n", sum / steps, loss[(e + 1) * steps]
              } }' "$work/losses"
}

# field NAME: the first number of that name in the run's summary
field() { sed -n '$s/.*"'"$1"'": *\([-+.0-9eE]*\).*/\1/p' "$work/metrics" | head -n 1; }

devices() { sed -n '1{s/ (no GPU: .*): /: /; s/^\([^:]*\): .*/\1/p}' "$work/out"; }
measured() { echo "Measured: one run$1, $(devices), $cpu, $cores cores, $date. Data: $origin."; }

# The last columns of each row.
rest_of_row() {
    printf '"%s",measured,"%s","%s",%s,%s' "$(printf %s "$origin" | tr '\n' ' ' | sed 's/"/""/g')" "$(devices)" "$cpu" "$cores" "$date"
}

# publish NAME: moves $work/csv to its place, and draws it
publish() {
    csv=$results/recipe_$1.csv
    { cp "$work/csv" "$csv.new" && mv "$csv.new" "$csv"; } || fail "cannot write $csv"
    printf '\nwritten:\n%s\n' "$csv"
    LC_ALL=C.UTF-8 gnuplot -c "plots/recipe_$1.gp" "$csv" "$results" 2>&1 || exit 1
}

# --- convnet: DDP on four ranks, batch norm, SGD ---------------------------------------------------------------------

bound=0.005 # between our losses and PyTorch's on the same digits, which differ by rounding

convnet_rows() { # epoch, mean, last, the course's and PyTorch's loss on the same digits (nan where unknown)
    if [ "$data" = "$build/digits60k" ]; then keep=1; else keep=0; fi
    epoch_losses 10 | awk -F'[ ,]' -v keep=$keep 'NR == FNR { if (FNR > 1) { course[FNR - 1] = $2; torch[FNR - 1] = $4 } next }
        { print FNR, $1, $2, course[FNR], keep ? torch[FNR] : "nan" }' "$here/convnet_reference.csv" -
}

recipe_convnet() {
    echo 'Recipe convnet: ConvNet with batch norm, DistributedDataParallel on 4 ranks, SGD, inputs in 0..1'
    train "$build/ddp_train" --spawn 4 --model convnet --per-device-batch 100 --optimizer sgd --lr 1e-4 --normalize none \
        --epochs 10 --seed 0 --data "$data"
    convnet_rows >"$work/rows"
    printf '\n%5s  %9s  %9s  %10s  %9s\n' epoch lockstep course difference PyTorch
    awk '{ printf "%5d  %9.4f  %9.4f  %+9.1f%%  %9s\n", $1, $2, $4, ($2 / $4 - 1) * 100, $5 == "nan" ? "-" : $5 }' "$work/rows"
    printf '%s\n' '' "$(measured '')" \
        'lockstep: mean loss of all ranks over the epoch. course: what its script printed, on MNIST with 4 GPUs: the mean over the' \
        "batches of rank 0 (which differs from all ranks' by up to 0.006 here). By that script it began with the same weights and took" \
        'its samples in the same order.'
    if [ "$data" = "$build/digits60k" ]; then
        echo "PyTorch: 1.13, DDP over gloo on these same digits, all ranks; so the data is what parts this run from the course's."
        awk -v bound=$bound '{ d = $2 - $5; if (d < 0) d = -d; if (d > most) most = d; seen += d == d }
            END { printf "lockstep and PyTorch differ by at most %.4f; the bound is %s\n", most, bound; exit !(seen == 10 && most <= bound) }' \
            "$work/rows" || touch "$work/missed"
    fi
    {
        echo 'epoch,loss,loss_last_step,course,pytorch,data,how,device,cpu,cores,date'
        rest=$(rest_of_row) awk '{ printf "%d,%s,%s,%s,%s,%s\n", $1, $2, $3, $4, $5, ENVIRON["rest"] }' "$work/rows"
    } >"$work/csv"
    publish convnet
}

# --- mlp-amp: Adam and automatic mixed precision ---------------------------------------------------------------------

# The convnet's activations, for which half precision is intended: a step of 100 samples, whose peak is read.
convnet_activations() {
    "$build/dp_train" --single --model convnet --batch-size 100 --steps 1 --no-evaluate --quiet --data "$data" --precision "$1" \
        ${DEVICE:+--device-kind "$DEVICE"} --metrics "$work/metrics" >"$work/out" || fail 'the run failed; see above'
    field activation
}

recipe_mlp_amp() {
    echo 'Recipe mlp-amp: MLP 784-256-10, Adam, automatic mixed precision; fp32 for comparison'
    : >"$work/rows"
    for precision in fp32 fp16 bf16; do
        train "$build/dp_train" --single --model mlp --optimizer adam --lr 1e-3 --batch-size 64 --epochs 5 --seed 0 \
            --precision $precision --data "$data"
        accuracy=$(sed -n 's/^final loss .*, test accuracy \([0-9.]*\) %.*/\1/p' "$work/out")
        scale=$(sed -n 's/^loss scale \([^ ]*\) at the end; \([0-9]*\) of .*/\1 \2/p' "$work/out")
        losses=$(epoch_losses 5 | awk '{ printf "%s ", $1 }')
        activations=$(field activation)
        echo "$precision $losses $accuracy ${scale:-nan 0} $activations $(convnet_activations $precision)" >>"$work/rows"
    done
    [ "$(awk 'NF == 11' "$work/rows" | wc -l)" -eq 3 ] || fail 'a run left figures out'
    printf '\n%-9s  epoch 1       2       3       4       5  accuracy %%  skipped   scale  activations    convnet\n' precision
    awk '{ printf "%-9s   %.4f  %.4f  %.4f  %.4f  %.4f  %10s  %7d  %6s  %9.1f KB  %6.2f MB\n", $1, $2, $3, $4, $5, $6, $7, $9, \
        $8 == "nan" ? "-" : $8, $10 / 1e3, $11 / 1e6 }' "$work/rows"
    printf '%s\n' '' "$(measured ' each')" \
        'Losses: mean over the epoch. skipped: steps left out because a gradient was not finite. scale: of the loss, at the end.' \
        "activations: the device's peak in this category. Halves need a copy of the input (784 values a sample) beside the layers'" \
        'outputs (266), so this model gains nothing; convnet, with 100 samples, shows what half precision saves.'
    {
        echo 'precision,epoch,loss,accuracy_percent,loss_scale,skipped_steps,activation_bytes,convnet_activation_bytes,data,how,device,cpu,cores,date'
        rest=$(rest_of_row) awk '{ for (e = 1; e <= 5; e++) printf "%s,%d,%s,%s,%s,%d,%d,%d,%s\n", $1, e, $(e + 1), $7, $8, $9, $10, $11, ENVIRON["rest"] }' "$work/rows"
    } >"$work/csv"
    publish mlp-amp
}

# ---------------------------------------------------------------------------------------------------------------------

choose_data
for recipe in "$@"; do
    case $recipe in
    mlp-amp) recipe_mlp_amp ;;
    convnet) recipe_convnet ;;
    esac
    echo
done
[ ! -e "$work/missed" ] || fail "convnet departs from PyTorch by more than $bound"
