/* Which targets of the Makefile build the plug-ins for GPUs: those that can use one, if requested; for which chips;
 * what they install; and that the values of make variables stay words. Nothing is built: `make -n` prints the commands
 * for a build folder of its own, as if CUDA were found, or not. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

/* A fake compiler for make's checks at each start, ten times faster: it finds every header. */
static char answering[600];

static void make_answering_compiler(void) {
    static const char answers[] = "#!/bin/sh\n"
                                  "case \"$*\" in\n"
                                  "*-dumpmachine*) echo x86_64-linux-gnu ;;\n"
                                  "*' -') while read -r line; do case $line in '\"'*) echo \"$line\" ;; esac; done ;;\n"
                                  "esac\n";
    scratch_write("answering", answers, strlen(answers));
    snprintf(answering, sizeof answering, "%s", scratch_path("answering"));
    assert_int_equal(chmod(answering, 0700), 0);
}

/* A prefix for a command, with two arguments. */
#define ANSWERED "CC=%s CXX=%s "
#define ANSWERING answering, answering

static const char script[] =
    "set -e\n"
    "unset ROOMS\n" /* from the make that runs this test: gpu-check needs all of them */
    "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= HAVE_nvcc=\"${2#no}\" HAVE_NCCL=\"${2#no}\" \"$3\" DEVICE=\"$4\" "
    ">\"$1.said\"\n"
    "echo $(grep -c -e '-shared.*/lib/ls_cuda.so' \"$1.said\") $(grep -c 'common/base/log.c' \"$1.said\")\n";

static void expect_plugins(const char *target, const char *has_cuda, const char *device, bool built) {
    static program p;
    int plugins = -1, sources = -1;
    make_answering_compiler();
    scratch_write("try.sh", script, strlen(script));
    program_run(&p, ANSWERED "/bin/sh %s %s %s %s %s", ANSWERING, scratch_path("try.sh"), scratch_path("build"),
                has_cuda, target, device);
    if (sscanf(p.out_text, "%d %d", &plugins, &sources) != 2 || sources < 1)
        fail_msg("make -n %s: status %d, %s%s", target, p.status, p.out_text, p.err_text);
    if ((plugins > 0) != built) fail_msg("%s DEVICE=%s: ls_cuda.so is %sbuilt", target, device, built ? "not " : "");
}

TEST_IN(programs, test_plugins) {
    expect_plugins("bench-dp-vs-ddp", "yes", "cuda", true);
    expect_plugins("accuracy", "yes", "cuda", true);
    expect_plugins("recipes", "yes", "cuda", true);
    expect_plugins("gpu-check", "yes", "cpu", true);        /* for GPUs only */
    expect_plugins("bench-dp-vs-ddp", "yes", "cpu", false); /* nvcc takes minutes */
    expect_plugins("bench-dp-vs-ddp", "no", "cuda", false); /* there is no nvcc */
    expect_plugins("plots", "yes", "cuda", false);          /* uses no GPU */
}

/* A signal to make reaches the recipe's shell, which must be the program itself (exec). */
TEST_IN(programs, test_recipes_of_benches_are_replaced) {
    static program p;
    static const char looking[] =
        "unset ROOMS\n"
        "for target in accuracy recipes claims tables bench-comm bench-dp-vs-ddp bench-memory bench-gpt bench-launch "
        "'class "
        "SUBMISSIONS=x' "
        "'lab LAB=03'; "
        "do\n"
        "    MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" $target | tail -n 1 | grep -q '^exec ' || echo $target\n"
        "done\n";
    make_answering_compiler();
    scratch_write("looking.sh", looking, strlen(looking));
    assert_int_equal(
        program_run(&p, ANSWERED "/bin/sh %s %s", ANSWERING, scratch_path("looking.sh"), scratch_path("build")), 0);
    assert_string_equal(p.out_text, "");
}

/* The duration is printed at the start; files that are built are counted, also for `make test`, whose line on a
 * terminal comes from tests/run.sh. */
TEST_IN(programs, test_progress) {
    static program p;
    static const char saying[] =
        "unset ROOMS\n"
        "export MAKEFLAGS= MAKELEVEL=0 V=\n"
        "for target in tables bench-dp-vs-ddp bench-memory bench-gpt bench-launch; do make -n BUILD=\"$1\" $target | "
        "grep -q "
        "'minutes' || "
        "echo $target; "
        "done\n"
        "make BUILD=\"$1\" \"$1/obj/common/base/hash.o\" | grep -q 'building: file 1' || echo 'no file is counted'\n"
        "printf '#!/bin/sh\\nsleep 3\\necho \"[  PASSED  ] 1 test(s).\"\\n' >\"$1.slow\" && chmod +x \"$1.slow\"\n"
        "script -qec \"printf 'built-a-file\\nbuilt-a-file\\n$1.slow\\n' | tests/run.sh 1\" /dev/null </dev/null |\n"
        "    grep -q '2 files built, 0 of 1 test programs done' || echo 'run.sh does not count files'\n";
    scratch_write("saying.sh", saying, strlen(saying));
    assert_int_equal(program_run(&p, "/bin/sh %s %s", scratch_path("saying.sh"), scratch_path("build")), 0);
    if (p.out_text[0]) fail_msg("%s%s", p.out_text, p.err_text);
}

/* The value of a variable becomes one word of the command that make prints, or is refused. */
TEST_IN(programs, test_odd_words) {
    static program p;
    static const char quoted[] =
        "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= HAVE_nvcc= recipes \"DATA=$2\" | tail -n 1\n";
    scratch_write("try.sh", quoted, strlen(quoted));
    assert_int_equal(program_run(&p, "/bin/sh %s %s a'b\";c`d`", scratch_path("try.sh"), scratch_path("build")), 0);
    program_expect_text(&p, "DATA='a'\\''b\";c`d`' labs/bench/recipes/recipes.sh");
    static const char *const builds[] = {"a;b", "a'b", "a$$(touch${IFS}injected)b", "a|b", "a\"b"};
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        assert_int_equal(program_run(&p, "/usr/bin/env MAKEFLAGS= make -n BUILD=%s help", builds[i]), 2);
        assert_non_null(strstr(p.err_text, "BUILD is '"));
    }
}

/* A target, and a variable that it reads. */
static const char targets_and_variables[] =
    "lab LAB\nlab CODE\nlab PREDICT\ngrade LAB\ngrade SEED\ngrade CODE\nreport LAB\nreport OUT\nclass LAB\n"
    "class SUBMISSIONS\nclass-check LAB\nclass-check DRAW\ncourse-check LAB\ncourse-check RUNS\ncourse-check BUGS\n"
    "course-check PARTS\nhandout OUT\nlab-figures LAB\nbench-comm N\nbench-comm COMM_ARGS\naccuracy DEVICE\n"
    "recipes RECIPE\nrecipes DATA\nbench-memory MODEL\nbench-memory N\nbench-memory MEMORY_ARGS\nbench-gpt "
    "MODEL\nbench-gpt PYTHON\n"
    "bench-gpt GPT_ARGS\nbench-launch N\nbench-launch TORCHRUN\nbench-launch LAUNCH_ARGS\nbench-dp-vs-ddp "
    "MODEL\nbench-dp-vs-ddp N\nbench-dp-vs-ddp BATCH\n"
    "bench-dp-vs-ddp PER_DEVICE_BATCH\ntables TABLES\npytorch-check PYTHON\ngpu-check GPU_ARGS\ngpu-bundle CUDA_ARCH\n"
    "guides-check PAGE\ncheck-docs RUN\nhostile AREAS\ntest-hosts CASES\ntest-hosts TORCHRUN\nrounding ROUNDING\nfuzz "
    "MINUTES\nsoak TESTS\n"
    "soak ROOMS\nsoak SOAK_RUNS\nall SAN\nhelp BUILD\n";

/* Runs the commands that make prints for each of them in a folder without the programs that they call: the only effect
 * left is a command that the shell runs because a value is not quoted, or ends quotes of either kind. Or make refuses
 * the value (7). */
static const char running[] =
    "unset ROOMS\n" /* from the make that runs this test */
    "mkdir \"$1.empty\"\n"
    "tree=$PWD\n"
    "tried=0\n"
    "while read -r target variable; do\n"
    "    tried=$((tried + 1))\n"
    "    for value in \";touch X;\\$\\$(touch X)';touch X;:'\"; do\n"
    "        cd \"$tree\"\n"
    "        MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" HAVE_NCCL= HAVE_cxx=yes \"$target\" \"$variable=$value\" "
    ">\"$1.said\" 2>\"$1.told\"\n"
    "        if [ $? -ne 0 ]; then\n"
    "            grep -q \"$variable is '\" \"$1.told\" || { echo \"make $target $variable=$value:\"; cat \"$1.told\"; "
    "}\n"
    "        else\n"
    "            cd \"$1.empty\"\n"
    "            tail -n 6 \"$1.said\" | grep -v '^mkdir' >\"$1.lines\"\n"
    "            sh -n \"$1.lines\" || echo \"make $target $variable=$value: no commands\"\n"
    "            PATH=/usr/bin:/bin sh \"$1.lines\" >\"$1.told\" 2>&1\n"
    "        fi\n"
    "        for made in X \"$tree/X\" \"$1.empty/X\"; do\n"
    "            if [ -e \"$made\" ]; then echo \"make $target ran a command of $variable=$value\"; rm \"$made\"; fi\n"
    "        done\n"
    "    done\n"
    "done <\"$2\"\n"
    "echo $tried tried\n";

TEST_IN(programs, test_values_are_no_commands) {
    static program p;
    make_answering_compiler();
    scratch_write("running.sh", running, strlen(running));
    scratch_write("variables", targets_and_variables, strlen(targets_and_variables));
    program_start(&p, ANSWERED "/bin/sh %s %s %s", ANSWERING, scratch_path("running.sh"), scratch_path("build"),
                  scratch_path("variables"));
    assert_int_equal(program_finish_within(&p, 180), 0);
    char all[32];
    snprintf(all, sizeof all, "%d tried\n", count_lines(targets_and_variables));
    if (strcmp(p.out_text, all) != 0) fail_msg("%s", p.out_text);
}

/* An unknown name is reported before anything is built, with the known ones. */
TEST_IN(programs, test_unknown_names) {
    static const struct {
        const char *words, *told;
    } cases[] = {
        {"bench",
         "There is no target 'bench'; near it: bench-comm bench-dp-vs-ddp bench-gpt bench-launch bench-memory."},
        {"tests", "There is no target 'tests'; near it: test."},
        {"figures", "There is no target 'figures'; near it: lab-figures."},
        {"zzz", "There is no target 'zzz'; make help lists all."},
        {"test ROOMS=bse", "ROOMS is 'bse'; it takes: base "},
        {"soak TESTS=test_bse", "TESTS is 'test_bse'; it takes names of "},
        {"lab LAB=99", "LAB is '99'; it takes: 01 02 "},
        {"report LAB=1", "LAB is '1'; it takes: 01 02 "},
        {"course-check PARTS=bug", "PARTS is 'bug'; it takes: handout "},
        {"course-check RUNS=some", "RUNS is 'some'; it takes a whole number."},
        {"all SAN=address", "SAN is 'address'; it takes: asan ubsan tsan fuzz."},
        {"accuracy DEVICE=gpu", "DEVICE is 'gpu'; it takes: cpu cuda."},
        {"guides-check PAGE=modle", "there is no page 'modle'; there are: all-reduce layer model operation"},
        {"check-docs RUN=modle", "there is no page 'modle'; "}};
    static program p;
    make_answering_compiler();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run(&p, ANSWERED "/usr/bin/env -u ROOMS MAKEFLAGS= MAKELEVEL=0 make %s", ANSWERING, cases[i].words);
        programs_await_orphans();
        if (p.status != 2 || !strstr(p.err_text, cases[i].told)) {
            fail_msg("make %s: status %d, %s%s", cases[i].words, p.status, p.out_text, p.err_text);
        }
    }
}

/* Counts the lines of `make -n` for a target that match each pattern of grep, in which a dot stands for a blank. */
static void count_said(const char *variables, const char *target, const char *const patterns[2], int counts[2]) {
    static const char counting[] =
        "unset ROOMS\n" /* as above */
        "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= $(echo \"$2\" | tr , ' ') \"$3\" >\"$1.said\"\n"
        "echo $(grep -c -e \"$4\" \"$1.said\") $(grep -c -e \"$5\" \"$1.said\")\n";
    static program p;
    make_answering_compiler();
    scratch_write("count.sh", counting, strlen(counting));
    program_run(&p, ANSWERED "/bin/sh %s %s %s %s %s %s", ANSWERING, scratch_path("count.sh"), scratch_path("build"),
                variables, target, patterns[0], patterns[1]);
    if (sscanf(p.out_text, "%d %d", &counts[0], &counts[1]) != 2) fail_msg("make -n %s: %s", target, p.err_text);
}

/* gpu-check needs no pictures, and without cmocka it leaves its tests out; other targets install their requirements. */
TEST_IN(programs, test_gpu_check_installs_nothing) {
    static const char *const patterns[] = {"apt-get.install", "gpu_check.sh"};
    int counts[2];
    count_said("HAVE_gnuplot=,HAVE_cmocka=", "gpu-check", patterns, counts);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 1);
    count_said("HAVE_gnuplot=", "plots", patterns, counts);
    assert_true(counts[0] > 0);
}

/* A bundle is for sm_90 unless CUDA_ARCH says otherwise; without nvcc there is none, which one line reports. */
TEST_IN(programs, test_bundle) {
    static const char *const patterns[] = {"compile.sh.*-gencode.arch=compute_90,code=sm_90.-c", "code=sm_80"};
    static const char *const files[] = {"bundle.sh.*ls_nccl.so.*test_walk", "code=sm_80"};
    static program p;
    int counts[2];
    count_said("HAVE_nvcc=yes", "gpu-bundle", patterns, counts);
    assert_true(counts[0] > 10);
    assert_int_equal(counts[1], 0);
    count_said("HAVE_nvcc=yes,HAVE_NCCL=yes,CUDA_ARCH=80", "gpu-bundle", files, counts);
    assert_int_equal(counts[0], 1);
    assert_true(counts[1] > 10);
    assert_int_equal(program_run(&p, "/bin/sh labs/bench/gpu_bundle/bundle.sh %s 90", scratch_path("build")), 1);
    assert_int_equal(count_lines(p.err_text) + count_lines(p.out_text), 1);
    assert_non_null(strstr(p.err_text, "nvcc was not found"));
}

/* make lab builds only what it needs, and the first line of a log has the number of files. The compiler is a stand-in
 * that creates empty files. */
TEST_IN(programs, test_lab_builds_what_it_needs) {
    static const char compiler[] = "#!/bin/sh\n"
                                   "case \" $* \" in *' -c '* | *' -o '*/for_lab/*) ;; *) exec cc \"$@\" ;; esac\n"
                                   "while [ \"$1\" != -o ]; do shift; done\n"
                                   ": >\"$2\"\n";
    static const char building[] =
        "unset ROOMS\n"
        "chmod +x \"$1/cc\" && MAKEFLAGS= MAKELEVEL=0 make BUILD=\"$1/for_lab\" SAN= V= CC=\"$1/cc\" AR=: $2 lab "
        "LAB=01 "
        "PREDICT=skip >\"$1/said\" 2>&1\n"
        "files=$(find \"$1/for_lab/obj\" \"$1/for_lab/hello\" \"$1/for_lab/ddprun\" -type f ! -name members ! -name "
        "flags | wc -l)\n"
        "told=$(sed -n '1s/^  building \\([0-9]*\\) files, up to [0-9]* min .*/\\1/p' \"$1/said\")\n"
        "echo $((told - files)) $(find \"$1/for_lab\" -maxdepth 1 -type f | wc -l) "
        "$(grep -c \"building: file [0-9]*50 of $told\\|building: file [0-9]*00 of $told\" \"$1/said\") $((told / 50)) "
        "$(grep -c 'file 1 of' \"$1/said\")\n";
    static program p;
    int library = -1, programs = -1, lines = -1, expected = -2, shown = -1;
    scratch_write("cc", compiler, strlen(compiler));
    scratch_write("lab.sh", building, strlen(building));
    program_run(&p, "/bin/sh %s %s -j4", scratch_path("lab.sh"), scratch_path("."));
    if (sscanf(p.out_text, "%d %d %d %d %d", &library, &programs, &lines, &expected, &shown) != 5)
        fail_msg("%s", p.err_text);
    assert_int_equal(library, 1); /* all files are counted, and the library, which this ar does not write */
    assert_int_equal(programs, 2);
    assert_int_equal(lines, expected);
    assert_int_equal(shown, 0);
    program_run(&p, "/bin/rm -r %s", scratch_path("for_lab/obj/ddp_procs"));
    program_run(&p, "/bin/sh %s %s MAKE_TERMOUT=x", scratch_path("lab.sh"), scratch_path(".")); /* as on a terminal */
    if (sscanf(p.out_text, "%d %d %d %d %d", &library, &programs, &lines, &expected, &shown) != 5)
        fail_msg("%s", p.err_text);
    assert_int_equal(shown, 1); /* one line, rewritten */
}
