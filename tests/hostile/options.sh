# Every option of every program with unlikely values. The program accepts them, or refuses them in one line. A program
# that would take long gets a signal after some seconds, and stops.
what='odd values of every option'
least=60
newline='
'

# Options that make the program's run short; $words is a list, $last follows the option.
words_of() { # program
    last=''
    case $1 in
    dp_train) words="$training --steps=2 --devices=2" ;;
    ddp_train) words="$training --steps=2 --spawn=2" ;;
    ddprun) words=--nproc-per-node=2 last=true ;;
    replay) words='--node=course --workload=course --n=1,2 --quiet' ;;
    fit_tn) words='--points=1:100,2:52,4:28' ;;
    calibrate) words='--quick --quiet --out=node.json' ;;
    mkdigits) words="--quiet --count=20 --test-count=10 --source=$tree/data/digits" last=made ;;
    tables) words='--quick --tables=5 --out=.' ;;
    bench_comm) words='--check --n=2 --sizes=1024:4096 --quiet --out=.' ;;
    bench_dp_vs_ddp) words='--models=mlp:784,8,10 --n=1 --rounds=1 --steps=12 --quiet --out=.' ;;
    bench_memory) words='--models=resnet50 --n=2 --rounds=1 --quiet --out=.' ;;
    bench_gpt) words='--model=gpt:1,2,8,8 --batch=2 --contexts=8 --rounds=1 --steps=11 --python=none --quiet --out=.' ;;
    gpu_check) words='--find --out=.' ;;
    hello) words='--threads=2 --timeout=2' ;;
    who_gets | who_holds) words='' ;;
    course_report) words=--as=answers last=$tree/labs/README.md ;;
    esac
}

programs='dp_train dp_train ddp_train ddp_train ddprun replay replay fit_tn calibrate mkdigits bench_comm bench_dp_vs_ddp bench_memory bench_gpt tables gpu_check hello
    who_gets who_holds course_report'

options_begin() {
    stopped=0
    for program in $programs; do
        run "$build/$program" --help
        expect_status 0
        sed -nE 's/^  (-h, )?--(\[no-\])?([a-z0-9-]*)(=?).*/--\3/p' "$out" | grep -v -e '--help' -e '--version' >"$folder/options.$program"
        [ -s "$folder/options.$program" ] || fail "$program --help lists no options"
    done
}

odd_value() { # sets $value
    draw 34
    case $drawn in
    0) value='' ;;
    1) value=99999999999999999999 ;;
    2) value=-1 ;;
    3) value=nan ;;
    4) value=inf ;;
    5) value=1e400 ;;
    6) value=1e-400 ;;
    7) value=0 ;;
    8) value=0x10 ;;
    9) value=' 1' ;;
    10) value='1 ' ;;
    11) value=1, ;;
    12) value=, ;;
    13) value=1,,2 ;;
    14) value="1${newline}2" ;;
    15) value="a${newline}error: b" ;;
    16) value=$(printf %05000d 7) ;;
    17) value=$(printf %0300d 7)/x ;;
    18) value=%s%n%d ;;
    19) value=. ;;
    20) value=/dev/null ;;
    21) value='$(touch X)' ;;
    22) value=$(printf '\033[2J') ;;
    23) value=1e3 ;;
    24) value=2147483648 ;;
    25) value=9223372036854775807 ;;
    26) value=-9223372036854775809 ;;
    27) value=on ;;
    28) value=-- ;;
    29) value=-0 ;;
    30) value=$(printf '\377\376') ;;
    31) value=1:2:3:4 ;;
    32) value=no/such/folder/x ;;
    33) value=4294967297 ;;
    esac
}

pick_option() { # sets $option, as one word
    # shellcheck disable=SC2046 # a list
    choose $(cat "$folder/options.$program")
    option=$chosen
    odd_value
    draw 12
    case $drawn in
    0) ;;                            # without a value
    1) option=--no-${option#--} ;;   # negated, whatever its type
    2) option=${option}x=$value ;;   # an unknown name
    3) option=$value ;;              # no name
    *) option=$option=$value ;;
    esac
}

options_case() {
    # shellcheck disable=SC2086 # a list
    choose $programs
    program=$chosen
    words_of "$program"
    pick_option
    cd "$work" || return
    # shellcheck disable=SC2086 # lists
    note_command "$build/$program" $words "$option" $last
    # shellcheck disable=SC2086 # lists
    HOSTILE_MARK=$mark timeout --foreground -k 15 6 "$build/$program" $words "$option" $last >"$out" 2>"$err" </dev/null
    status=$?
    cd "$tree" || return
    sed -i '/^tables: table [0-9]*: /d' "$err" # announcements of the next table
    if [ $status -eq 124 ]; then # --steps=2147483648 takes its time
        stopped=$((stopped + 1)) notes=", $stopped that would take long"
        return
    fi
    [ $status -le 128 ] || fail "$program ended by signal $((status - 128))"
    expect_status 0 1 2 3
    [ "$status" -eq 0 ] || expect_one_line
    [ ! -e "$work/X" ] || fail 'a shell has run the value'
}
