# Unusual files for programs to write and read: pipes without a peer, devices, full disks, limits, symbolic links, folders
# of other users, odd names. If the program can use the file, the weights are right; if it cannot, it refuses in one line,
# and existing files stay.
what='special files, full disks, limits, links, odd names'
least=30
newline='
'
steps=8

files_begin() {
    run_training "$build/dp_train" --single
    expect_status 0
    expected=$(hash_of "$out")
    run_training "$build/ddp_train" --spawn=2
    expect_status 0
    expected_ddp=$(hash_of "$out")
}

run_training() { # program and options
    # shellcheck disable=SC2086 # a list
    run "$@" $training --steps=$steps
}

choose_trainer() { # sets $trainer, $trainers, $right
    trainer=$build/dp_train trainers=--single right=$expected
    draw 3
    [ "$drawn" -gt 0 ] || trainer=$build/ddp_train trainers=--spawn=2 right=$expected_ddp
}

# If a rank fails, its launcher names the cause, too.
expect_refusal() {
    if [ "$trainers" = --single ]; then expect_one_line; else expect_error_lines "$err" && [ "$(wc -l <"$err")" -le 3 ] || fail "more than three lines"; fi
}

expect_done_or_refused() {
    expect_status 0 1 2
    if [ "$status" -eq 0 ]; then expect_hash "$right"; else expect_refusal; fi
}

special_file() {
    mkfifo "$work/pipe" "$work/other"
    mkdir "$work/folder"
    ln -s loop "$work/loop"
    : >"$work/empty"
    choose_trainer
    choose --metrics --dump-losses --summary --trace --save --save-weights --resume --resume-if-present --init --data --data=stream:
    option=$chosen
    choose pipe folder loop empty pipe/x empty/x /dev/full /dev/zero /dev/tty /dev/stdin
    case $chosen in /*) place=$chosen ;; *) place=$work/$chosen ;; esac
    case $option in --data=*) ;; *) option=$option= ;; esac
    # shellcheck disable=SC2086 # lists
    run "$trainer" $trainers $training --steps=$steps "$option$place"
    expect_done_or_refused
    # a trace may be written to the folder, and other files over the empty one
    case $option,$chosen in --trace=,folder | *,empty) ;; --data* | --init* | --resume=*) [ "$status" -ne 0 ] || fail "$option$place was read" ;; esac
    [ -p "$work/pipe" ] && [ -d "$work/folder" ] && [ -L "$work/loop" ] || fail "$option$place has replaced what was there"
}

full_disk() {
    mkdir "$work/small"
    draw 900
    if ! mount -t tmpfs -o size=$((100 + drawn))k none "$work/small" 2>/dev/null; then
        notes=', without full disks (no mount here)'
        odd_names
        return
    fi
    mounted=$work/small
    choose_trainer
    # shellcheck disable=SC2086 # a list
    run "$trainer" $trainers $training --steps=3 --save="$work/small/checkpoint"
    had=$status
    [ $had -eq 0 ] || expect_refusal
    { head -c 100 /dev/zero | tr '\0' x >"$work/small/filler"; } 2>/dev/null # the disk may already be full
    run_training "$trainer" $trainers --save="$work/small/checkpoint" --save-every=1 --resume-if-present="$work/small/checkpoint" \
        --dump-losses="$work/small/losses" --save-weights="$work/small/weights"
    expect_status 0 1
    [ "$status" -eq 0 ] || grep -q 'No space left\|too little space\|space' "$err" || fail "not named: the disk is full: $(head -n 1 "$err")"
    [ "$had" -ne 0 ] || [ -f "$work/small/checkpoint" ] || fail 'the checkpoint that was there is gone'
    run_training "$trainer" $trainers --resume-if-present="$work/small/checkpoint"
    expect_status 0
    expect_hash "$right"
    left=$(find "$work/small" -name '.?*' -type f | head -n 1)
    [ -z "$left" ] || fail "left on the full disk: $left"
    clean_up
}

limits() {
    choose_trainer
    choose f n v
    limit=$chosen
    case $limit in
    f) draw 700 ;;
    n) draw 60 ;;
    v) draw 1500000 && drawn=$((drawn / (1 + drawn % 15) + 50000)) ;; # mostly near the program's need
    esac
    # the program itself must start
    (ulimit -$limit $drawn && exec "$trainer" --version) >/dev/null 2>&1 || return
    : >"$work/.small" # this shell's own files are short
    # shellcheck disable=SC2016 # for that shell
    run_training sh -c 'ulimit "-$1" "$2" && shift 2 && exec "$@"' sh $limit $drawn "$trainer" $trainers --save="$work/checkpoint" --save-every=2
    expect_done_or_refused
    [ "$status" -eq 0 ] || [ "$limit" != f ] || expect_text 'ulimit -f'
}

# An output file that is also an input, in a different spelling of its name.
same_file() {
    mkdir "$work/there" && cp "$tree"/data/digits/*-ubyte* "$work/there" || return
    input=$work/there/train-labels-idx1-ubyte.gz
    ln "$input" "$work/hard" && ln -s there/train-labels-idx1-ubyte.gz "$work/soft" && before=$(cksum <"$input") || return
    choose_trainer
    choose "$input" "$work/there/../there//train-labels-idx1-ubyte.gz" "$work/hard" "$work/soft"
    place=$chosen
    choose --metrics --dump-losses --summary --save --save-weights
    # shellcheck disable=SC2086 # lists; the last --data counts
    run "$trainer" $trainers $training --steps=$steps --data="$work/there" "$chosen=$place"
    expect_status 2
    expect_refusal
    [ "$(cksum <"$input")" = "$before" ] || fail "$chosen has destroyed the data"
}

links() {
    mkdir "$work/there"
    choose_trainer
    choose 600 640 644 660
    mode=$chosen
    : >"$work/there/file"
    chmod $mode "$work/there/file"
    ln -s there/file "$work/link"
    ln -s link "$work/second"
    ln -s there/not-yet "$work/dangling"
    choose --save --save-weights --summary --dump-losses --metrics
    option=$chosen
    choose link second dangling
    run_training "$trainer" $trainers "$option=$work/$chosen"
    expect_status 0
    expect_hash "$right"
    [ -L "$work/$chosen" ] || fail "$option has replaced a link"
    [ -s "$work/$chosen" ] || fail "$option has not written where the link leads"
    [ "$chosen" = dangling ] || [ "$(stat -c %a "$work/there/file")" = $mode ] || fail "$option has changed the mode of the file, $mode"
}

# A folder in which this user may not write.
folder_of_another() {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || { links; return; }
    mkdir "$work/others"
    : >"$work/others/file"
    choose 755 1777 700
    chmod "$chosen" "$work/others" && chmod 644 "$work/others/file"
    choose_trainer
    choose --save --save-weights --summary --dump-losses --metrics
    run_training setpriv --reuid=65534 --regid=65534 --clear-groups "$trainer" $trainers "$chosen=$work/others/file"
    expect_status 1
    expect_refusal
    [ ! -s "$work/others/file" ] || fail 'the file of another user was written'
}

odd_names() {
    choose "a'\$(touch X)'b" 'a"`touch X`"b' 'back\slash\n' "two${newline}lines" '-rf' ' blank ' '$HOME' 'a;touch X' '*' "quote'" 'per%s%n' 'ü' '~'
    odd=$work/$chosen
    mkdir "$odd"
    choose train plot replay data bench
    case $chosen in plot | replay) cd "$tree" ;; *) cd "$work" ;; esac || return # these find their files relative to it
    case $chosen in
    train)
        choose_trainer
        run_training "$trainer" $trainers --save="$odd/c" --metrics="$odd/m" --trace="$odd/t" --trace-steps=2 --summary="$odd/s"
        expect_status 0
        expect_hash "$right"
        for file in c m t s; do [ -e "$odd/$file" ] || fail "$file is not there"; done
        run "$build/replay" --quiet --trace="$odd/t"
        ;;
    plot)
        run "$build/fit_tn" --points=1:100,2:52,4:28,8:15 --plot="$odd/p.png"
        [ -s "$odd/p.png" ] || fail 'no picture was drawn'
        ;;
    replay)
        run "$build/replay" --quiet --node=course --workload=course --out="$odd" --timeline="$odd/t.json" --mode=ddp
        [ -s "$odd/replay.csv" ] && [ -s "$odd/t.json" ] || fail 'results are missing'
        ;;
    data)
        cp "$tree"/data/digits/*-ubyte* "$odd"
        run_training "$build/dp_train" --single --data="$odd"
        expect_hash "$expected"
        ;;
    bench)
        run "$build/bench_comm" --check --quiet --n=2 --sizes=1024:1024 --out="$odd"
        [ -s "$odd/comm.csv" ] || fail 'no results'
        ;;
    esac
    cd "$tree" || return
    expect_status 0
    [ ! -e "$work/X" ] && [ ! -e "$tree/X" ] && [ ! -e "$odd/X" ] || fail 'a shell has run the name'
}

full_output() {
    choose dp ddp replay fit help calibrate
    case $chosen in
    dp) set -- "$build/dp_train" --single ;;
    ddp) set -- "$build/ddp_train" --spawn=2 ;;
    replay) set -- "$build/replay" --quiet --node=course --workload=course ;;
    fit) set -- "$build/fit_tn" --points=1:100,2:52,4:28 ;;
    help) set -- "$build/dp_train" --help ;;
    calibrate) set -- "$build/calibrate" --quick --quiet --out="$work/node.json" ;;
    esac
    # shellcheck disable=SC2086 # a list
    case $chosen in dp | ddp) set -- "$@" $training --steps=2 ;; esac
    # shellcheck disable=SC2016 # for that shell
    trainers=--single
    [ "$chosen" != ddp ] || trainers=--spawn=2
    run sh -c 'exec "$@" >/dev/full' sh "$@"
    expect_status 1
    expect_refusal
}

files_case() {
    choose special_file special_file same_file full_disk limits limits links folder_of_another odd_names odd_names full_output
    $chosen
}
