# Settings that a run might accept silently: different ones than a checkpoint's, a batch given twice, a missing file to
# resume from, weights that are not numbers, an unknown instruction set, a folder without test data.
what='resumed with other settings, batches said twice, NaN in weights: named'
least=20

settings_begin() {
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --single $training --steps=4 --save="$folder/resumed" --save-weights="$folder/weights"
    expect_status 0
    expected=$(hash_of "$out")
    loud=$(echo "$training" | sed 's| --quiet||')
}

# Each differs from the checkpoint's; the note names all of them.
resumed_with_others() {
    set --
    : >"$work/names"
    for row in 'lr learning.rate 0.01 0.1 1e-9' 'weight-decay weight.decay 0.1 1e-7' 'clip-norm clipping 1 0.5' 'seed seed 1 7' \
        'precision precision bf16 fp16' 'normalize normalization none' 'lr-schedule schedule cosine step'; do
        draw 3
        [ "$drawn" -eq 0 ] || continue
        # shellcheck disable=SC2086 # a list
        choose ${row#* * }
        set -- "$@" "--${row%% *}=$chosen"
        name=${row#* }
        echo "${name%% *}" | tr . ' ' >>"$work/names"
    done
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --single $loud --steps=6 --resume="$folder/resumed" "$@"
    expect_status 0
    [ $# -eq 0 ] || expect_text 'other than before'
    while read -r name; do expect_text "$name"; done <"$work/names"
    [ $# -gt 0 ] || ! grep -q 'other than' "$err" || fail 'the same settings are called others'
}

batch_said_twice() {
    choose 1 2 3
    devices=$chosen
    draw 20
    each=$((drawn + 1))
    choose $((each * devices)) $((each * devices)) $((each * devices + 1)) $each 64
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --devices=$devices $training --steps=2 --batch-size="$chosen" --per-device-batch=$each
    if [ "$chosen" -eq $((each * devices)) ]; then
        expect_status 0
    else
        expect_status 2
        expect_one_line
        expect_text --per-device-batch
    fi
}

nothing_to_resume() {
    choose dp ddp
    case $chosen in
    dp) set -- "$build/dp_train" --single ;;
    ddp) set -- "$build/ddp_train" --spawn=2 ;;
    esac
    # shellcheck disable=SC2086 # a list
    run "$@" $training --steps=4 --resume="$work/none"
    expect_status 1
    expect_one_line
    # shellcheck disable=SC2086 # a list
    run "$@" $training --steps=4 --resume-if-present="$work/none"
    expect_status 0
}

not_numbers() {
    cp "$folder/weights" "$work/weights"
    nbytes=$(wc -c <"$work/weights")
    draw $((nbytes / 8)) # in the second half, where no header is
    choose '\000\000\300\177' '\000\000\200\177' '\001\000\200\377'
    # shellcheck disable=SC2059 # octal escapes print bytes
    printf "$chosen" | dd of="$work/weights" bs=1 seek=$((nbytes - 4 * (drawn / 2 + 1))) conv=notrunc 2>/dev/null
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --single $training --steps=2 --init="$work/weights"
    expect_status 1
    expect_one_line
    grep -qiE 'nan|inf' "$err" || fail "not named: $(head -n 1 "$err")"
}

unknown_instructions() {
    choose v9 v 3 V3 avx2 ' v3' v33 none
    # shellcheck disable=SC2086 # a list
    run env LS_CPU_ISA="$chosen" "$build/dp_train" --single $training --steps=2
    expect_status 1 2
    expect_one_line
    expect_text LS_CPU_ISA
}

no_test_data() {
    mkdir "$work/data" && cp "$tree"/data/digits/train* "$work/data"
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --single $training --steps=4 --data="$work/data"
    expect_status 0
    expect_hash "$expected"
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --single $training --steps=4 --data="$work/data" --evaluate
    expect_status 1
    expect_one_line
}

settings_case() {
    choose resumed_with_others resumed_with_others batch_said_twice nothing_to_resume not_numbers unknown_instructions no_test_data
    $chosen
}
