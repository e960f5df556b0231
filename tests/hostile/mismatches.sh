# Ranks without a launcher, one of which differs in one respect: an option, its build of the program, its data, the number
# of ranks. All ranks refuse, with status 2 and a line that names the difference, the rank, and both values.
what='ranks that differ in one option, build or data, refused by all'
least=20

# option | options that all ranks need for it | values that are not the default; of a flag the option itself
rows() {
    cat <<'END'
model||mlp:784,33,10 mlp:784,32,16,10 convnet gpt:1,1,8,8
normalize||none
sync-bn|--model=convnet|-
checkpoint-activations|--model=convnet|1 2 sqrt
shard-state||1 2 3
prefetch-blocks|--shard-state=3|0 2
epochs||3 7
steps||3 100
batch-size||62 64 100 2
accumulate||2 3
resident-batches||1 4
no-shuffle||-
no-set-epoch||-
drop-last||-
seed||1 7 4294967296
workers||0 2
optimizer||sgd adamw
lr||0.1 0.0010001 1e-9 0
momentum|--optimizer=sgd|0.9 1e-7
nesterov|--optimizer=sgd --momentum=0.5|-
weight-decay|--optimizer=adamw|0 0.1 1e-9
clip-norm||1 0.5 1e9
offload||optimizer
lr-scale||linear sqrt
warmup-steps||1 2
lr-schedule||cosine step
lr-min|--lr-schedule=cosine|0.0001 1e-30
lr-decay|--lr-schedule=step|0.5 0.100001
lr-decay-epochs|--lr-schedule=step|1 31
precision||fp16 bf16
init-scale|--precision=fp16|1024 65537
growth-interval|--precision=fp16|1 1999
evaluate||-
generate|--data=sums:1 --model=gpt:1,1,8,8|3 20
temperature|--data=sums:1 --model=gpt:1,1,8,8 --generate=3|0.5 1.0001
host-lock||1 50
trace||trace
trace-steps|--trace=trace|1 19
virtual-time|--trace=trace|-
shard||contiguous
backend||shm
allreduce||direct ring halving-doubling tree naive
bucket-cap-mb||1 0.01 24.999
compress||fp16 bf16 topk:0.1 topk:0.1,nofeedback
no-overlap||-
find-unused||-
debug-ranks||-
debug-collectives||-
debug-values||-
flight||/tmp
schedule||gpipe
uneven||-
join|--uneven|-
join-divide|--uneven --join|active
join-throw|--uneven --join|-
save||checkpoint
resume-if-present||nothing
END
}

# Options that may differ between ranks, that are for GPUs only, that start ranks, that do not allow every number of ranks; and those
# compared by their effect.
elsewhere='device-kind data init per-device-batch tf32 cuda-graph pin-memory no-pin-memory debug-launches resume save-every save-weights save-module-prefix timeout
    device-memory metrics summary dump-losses quiet verbose spawn elastic max-restarts local-rank pipeline tensor sequence-parallel show-schedule show-model show-pytorch device-ids prefetch help version shuffle set-epoch overlap no-evaluate'

# Each new option of ddp_train must be listed here.
mismatches_begin() {
    run "$build/ddp_train" --help
    rows | cut -d'|' -f1 >"$work/named"
    # shellcheck disable=SC2086 # a list
    printf '%s\n' $elsewhere >>"$work/named"
    sed -nE 's/^  (-h, )?--(\[no-\])?([a-z0-9-]*).*/\3/p' "$out" | grep -vxFf "$work/named" >"$work/new"
    [ ! -s "$work/new" ] || fail "tests/hostile/mismatches.sh says nothing of $(tr '\n' ' ' <"$work/new")"
}

# A different build: the same program with a different build id.
other_build() {
    cp "$build/ddp_train" "$work/ddp_train"
    id=$(readelf -n "$build/ddp_train" 2>/dev/null | sed -n 's/.*Build ID: //p')
    offset=$(readelf -SW "$build/ddp_train" | sed -n 's/.*\.note\.gnu\.build-id *NOTE *[0-9a-f]* *\([0-9a-f]*\).*/\1/p')
    [ -n "$id" ] && [ -n "$offset" ] || { fail 'no build id found (readelf)'; return; }
    printf '\000' | dd of="$work/ddp_train" bs=1 seek=$((0x$offset + 16)) conv=notrunc 2>/dev/null
    ! cmp -s "$build/ddp_train" "$work/ddp_train" || printf '\001' | dd of="$work/ddp_train" bs=1 seek=$((0x$offset + 16)) conv=notrunc 2>/dev/null
}

# The digits, with the samples in another order: the same sizes.
other_data() {
    run "$build/mkdigits" --quiet --count=1500 --test-count=297 "--seed=$1" --source="$tree/data/digits" "$work/digits"
    expect_status 0
}

pick_difference() { # sets $option, $context, $given; $program of the rank that differs
    program=$build/ddp_train context='' given='' named=''
    draw 12
    case $drawn in
    0) other_build; program=$work/ddp_train given=--verbose named="the program's build" ;;
    1) draw 1000; other_data "$drawn"; given=--data=$work/digits named='the training data' ;;
    2) given=--data=random:1 named='the training data' ;;
    *)
        # shellcheck disable=SC2046 # a list
        choose $(rows | tr ' ' '~')
        option=${chosen%%|*} values=${chosen##*|} context=${chosen#*|}
        context=$(echo "${context%|*}" | tr '~' ' ')
        # shellcheck disable=SC2046 # a list
        choose $(echo "$values" | tr '~' ' ')
        given=--$option named=--${option#no-}
        [ "$chosen" = - ] || given=--$option=$chosen
        ;;
    esac
}

mismatches_case() {
    cd "$work" || return
    pick_difference
    choose 2 2 3
    ranks=$chosen
    draw "$ranks"
    who=$drawn
    draw_port
    for r in $(seq 0 $((ranks - 1))); do
        own='' its=$build/ddp_train
        [ "$r" -ne "$who" ] || { own=$given its=$program; }
        # shellcheck disable=SC2086 # lists
        start_rank "$r" "$ranks" $port LS_JOB="$mark" LS_JOB_TOKEN="$mark" "$its" $training --timeout=30 --steps=2 $context $own
    done
    cd "$tree" || return
    for r in $(seq 0 $((ranks - 1))); do
        await_rank "$r"
        expect_status 2
        expect_error_lines "$err.$r"
        # an option that is invalid by itself, as a batch smaller than the ranks, is all that the rank reports; the
        # others compare
        if [ "$r" -eq "$who" ] && grep -q 'cannot share a batch' "$err.$r"; then continue; fi
        expect_text "$named: rank" "$err.$r"
        expect_text ', but rank 0 has ' "$err.$r"
    done
}
