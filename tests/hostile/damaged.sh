# Files with bytes flipped, cut off, inserted or appended: checkpoints, weights, data, traces, nodes, workloads, tables. Each
# is read as it should be, or refused with one line; compressed data (gzip) have a checksum, so there the result is the same
# or none.
what='damaged files refused by one line, or read'
least=40

damaged_begin() {
    good=$folder/good refused=0
    mkdir -p "$good/plain" "$good/packed"
    # shellcheck disable=SC2086 # a list
    run "$build/dp_train" --single $training --steps=4 --save="$good/checkpoint" --save-weights="$good/weights" --trace="$good/trace" --trace-steps=2
    expect_status 0
    run "$build/mkdigits" --quiet --count=120 --test-count=60 --source="$tree/data/digits" "$good/made"
    expect_status 0
    for file in "$good"/made/*ubyte*; do
        case $file in
        *.gz) cp "$file" "$good/packed/" && gzip -dc "$file" >"$good/plain/$(basename "$file" .gz)" ;;
        *) cp "$file" "$good/plain/" && gzip -c "$file" >"$good/packed/$(basename "$file").gz" ;;
        esac
    done
    run "$build/dp_train" --single $training --steps=4 --data="$good/packed"
    expect_status 0
    expected=$(hash_of "$out")
    run "$build/replay" --quiet --node=course --workload=course --n=1,2 --out="$good"
    expect_status 0
}

put_byte() { # file, place, value
    # shellcheck disable=SC2059 # an octal escape prints a byte
    printf "\\$(printf %03o "$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

random_bytes() { # how many
    draw 1000000000
    awk -v turn="$drawn" -v count="$1" 'BEGIN { srand(turn); for (i = 0; i < count; i++) printf "%03o\n", int(rand() * 256) }' |
        while read -r octal; do printf "\\$octal"; done
}

# Half of the places are in the first 600 bytes, where headers are.
draw_place() { # bytes
    draw 2
    [ "$drawn" -eq 0 ] || [ "$1" -lt 600 ] || { draw 600; return; }
    draw "$1"
}

# Changes a number in a text.
change_number() { # file
    choose 0 1 2 3 7 15 40 100
    turn=$chosen
    choose 0 -1 1e999 99999999999999999999 nan null '""' '[]' '{}' 4294967296 1e-320 9e15 0.5 true
    awk -v turn="$turn" -v with="$chosen" '{ rest = $0; text = ""
        while (match(rest, /-?[0-9][0-9.e+-]*/)) {
            text = text substr(rest, 1, RSTART - 1) (seen++ == turn ? with : substr(rest, RSTART, RLENGTH)); rest = substr(rest, RSTART + RLENGTH) }
        print text rest }' "$1" >"$1.new" && mv "$1.new" "$1"
}

damage() { # file: in place; sets $manner to the kind of damage
    nbytes=$(wc -c <"$1")
    choose flip flip flip cut extend insert
    manner=$chosen
    case $1 in *.json | *.csv) draw 2 && [ "$drawn" -eq 0 ] || manner=number ;; esac
    draw_place "$nbytes"
    place=$drawn
    case $manner in
    flip)
        draw 4
        for byte in $(seq 0 "$drawn"); do
            draw 256
            put_byte "$1" "$place" "$drawn"
            draw_place "$nbytes"
            place=$drawn
        done
        ;;
    cut) head -c "$place" "$1" >"$1.new" && mv "$1.new" "$1" ;;
    extend) draw 300 && random_bytes $((drawn + 1)) >>"$1" ;;
    insert) { head -c "$place" "$1" && draw 20 && random_bytes $((drawn + 1)) && tail -c +$((place + 1)) "$1"; } >"$1.new" && mv "$1.new" "$1" ;;
    number) change_number "$1" ;;
    esac
    note_command "($manner at $place of $nbytes bytes: $1)"
}

expect_read_or_refused() {
    expect_status 0 1 2
    [ "$status" -eq 0 ] && return
    refused=$((refused + 1))
    expect_one_line
    notes=": $refused refused"
}

choose_trainer() {
    trainer=$build/dp_train trainers=--single
    draw 4
    [ "$drawn" -gt 0 ] || trainer=$build/ddp_train trainers=--spawn=2
}

# A huge number or a negative second moment is read as it is; the training then ends, and each rank reports it.
expect_divergence() {
    expect_status 1
    expect_error_lines "$err"
    expect_text 'first value that is not finite'
}

# A checkpoint that has changed is refused.
expect_checksum() {
    if [ "$status" -eq 0 ] && ! cmp -s "$good/checkpoint" "$work/file"; then
        fail 'a damaged checkpoint is taken'
    fi
}

# Lengths are in the header: a longer or shorter file is always detected, changed bits of a number are not.
damaged_weights() { # name, option
    cp "$good/$1" "$work/file"
    damage "$work/file"
    choose_trainer
    # shellcheck disable=SC2086 # a list
    run "$trainer" $trainers $training --steps=6 "$2=$work/file"
    if grep -q ': the loss is ' "$err"; then expect_divergence; else expect_read_or_refused; fi
    [ "$1" != checkpoint ] || expect_checksum
    case $manner in cut | extend) [ "$status" -ne 0 ] || fail "a file of $(wc -c <"$work/file") bytes is taken, the right one has $nbytes" ;; esac
}

damaged_data() { # folder, prefix
    cp -r "$good/$1" "$work/data"
    # shellcheck disable=SC2046 # a list
    choose $(ls "$work/data")
    damage "$work/data/$chosen"
    choose_trainer
    run "$trainer" $trainers $training --steps=4 --evaluate --data="$2$work/data"
    expect_read_or_refused
    [ "$1" != packed ] || [ "$status" -ne 0 ] || [ -n "$2" ] || [ "$trainer" != "$build/dp_train" ] || expect_hash "$expected"
}

damaged_trace() {
    cp -r "$good/trace" "$work/trace"
    # shellcheck disable=SC2046 # a list
    choose $(ls "$work/trace")
    damage "$work/trace/$chosen"
    choose '' --node=course '--node=course --vary'
    # shellcheck disable=SC2086 # a list
    run "$build/replay" --quiet --trace="$work/trace" $chosen
    expect_read_or_refused
}

damaged_text() { # kind
    case $1 in
    node) file=$tree/labs/replay/nodes ;;
    workload) file=$tree/labs/replay/workloads ;;
    esac
    # shellcheck disable=SC2046 # a list
    choose $(ls "$file"/*.json)
    cp "$chosen" "$work/file.json"
    damage "$work/file.json"
    case $1 in
    node) run "$build/replay" --quiet --node="$work/file.json" --workload=course ;;
    workload) run "$build/replay" --quiet --node=course --workload="$work/file.json" ;;
    esac
    expect_read_or_refused
}

damaged_csv() {
    cp "$good/replay.csv" "$work/file.csv"
    damage "$work/file.csv"
    choose dp ddp
    run "$build/fit_tn" --csv="$work/file.csv" --mode="$chosen" --predict=8
    expect_read_or_refused
}

damaged_case() {
    choose checkpoint checkpoint weights plain packed stream trace trace node workload csv
    case $chosen in
    checkpoint) damaged_weights checkpoint --resume ;;
    weights) damaged_weights weights --init ;;
    plain) damaged_data plain '' ;;
    packed) damaged_data packed '' ;;
    stream) damaged_data plain stream: ;;
    trace) damaged_trace ;;
    node | workload) damaged_text "$chosen" ;;
    csv) damaged_csv ;;
    esac
}
