/* run.sh of the bundle: which libraries it finds, and that it passes on its options. The bundle is a scratch folder
 * with the plug-ins of tests/cuda_on_cpu, which need libcuda_on_cpu.so as ours need CUDA's libraries. `make
 * bundle-check` runs a whole bundle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "labs/bench/shared/machine.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define LIBRARY "libcuda_on_cpu.so"

static program p;

/* FOLDER/bundle; the plug-ins' library is moved to FOLDER/`place`, and a Python that finds FOLDER/wheels is in PATH.
 * The libraries that this machine has stay where they are. */
static void make_bundle(const char *place) {
    static const char script[] =
        "set -e; mkdir -p \"$1/bundle/labs/bench/gpu_check\"; cp labs/bench/gpu_bundle/run.sh \"$1/bundle/\"; cd "
        "\"$1\"\n"
        "mkdir -p bundle/build/lib bundle/build/tests bundle/lib driver bin \"$3\"; : >driver/libcuda.so.1\n"
        "cp \"$2/ls_cuda.so\" \"$2/ls_nccl.so\" bundle/build/lib/; cp \"$2/" LIBRARY "\" \"$3/\"\n"
        "cp /bin/true bundle/build/dp_train; cp /bin/true bundle/build/tests/test_a\n"
        "printf '#!/bin/sh\\necho %s/wheels/nvidia/some/lib\\n' \"$PWD\" >bin/python3\n"
        "echo commit v1-3-gabc >bundle/made-of; cd bundle/labs/bench/gpu_check; chmod +x \"$1/bin/python3\"\n"
        "printf '#!/bin/sh\\nfor word; do printf \"<%%s>\" \"$word\"; done\\npwd\\n' >gpu_check.sh; chmod +x "
        "gpu_check.sh\n";
    scratch_write("make.sh", script, strlen(script));
    const char *plugins = getenv("LS_PLUGINS");
    assert_non_null(plugins);
    if (program_run(&p, "/bin/sh %s %s %s %s", scratch_path("make.sh"), scratch_folder(), plugins, place) != 0)
        fail_msg("%s", p.err_text);
}

/* Runs run.sh with these words; LD_LIBRARY_PATH names a driver, CUDA_HOME names FOLDER/`toolkit`. */
static int run_bundle_with(const char *toolkit, const char *words) {
    const char *folder = scratch_folder();
    assert_int_equal(setenv("CUDA_HOME", scratch_path(toolkit), 1), 0); /* words cannot contain blanks */
    int status = program_run(
        &p, "LS_PLUGINS= PATH=%s/bin:/usr/bin:/bin LD_LIBRARY_PATH=%s/driver:/nowhere /bin/sh %s/bundle/run.sh %s",
        folder, folder, folder, words);
    unsetenv("CUDA_HOME");
    return status;
}

static int run_bundle(const char *words) { return run_bundle_with("toolkit", words); }

/* Checks the LD_LIBRARY_PATH that run.sh --look prints; `front`: the folder before the bundle's own. */
static void expect_found(const char *place, const char *front) {
    char expected[2048];
    make_bundle(place);
    if (run_bundle("--look") != 0) fail_msg("%s%s", p.out_text, p.err_text);
    snprintf(expected, sizeof expected, "\nLD_LIBRARY_PATH=%s%s%s%s/bundle/lib:%s/driver:/nowhere\n",
             front ? scratch_folder() : "", front ? front : "", front ? ":" : "", scratch_folder(), scratch_folder());
    program_expect_text(&p, expected);
    assert_string_equal(p.err_text, "");
}

TEST_IN(programs, libraries_in_a_toolkit) { expect_found("toolkit/lib64", "/toolkit/lib64"); }

TEST_IN(programs, a_toolkit_with_a_blank_in_its_name) {
    char expected[1024];
    make_bundle("toolkit/lib64");
    assert_int_equal(rename(scratch_path("toolkit"), scratch_path("a toolkit")), 0);
    assert_int_equal(run_bundle_with("a toolkit", "--look"), 0);
    snprintf(expected, sizeof expected, "\nLD_LIBRARY_PATH=%s/lib64:", scratch_path("a toolkit"));
    program_expect_text(&p, expected);
}

TEST_IN(programs, libraries_of_python) { expect_found("wheels/nvidia/some/lib", "/wheels/nvidia/some/lib"); }

/* A library that the loader finds by itself is not searched for. */
TEST_IN(programs, libraries_of_the_path) { expect_found("driver", NULL); }

/* One line names the missing libraries, and programs that do not need them run. */
TEST_IN(programs, missing_libraries_are_named) {
    make_bundle("elsewhere");
    assert_int_equal(run_bundle("--look"), 1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "run.sh: not found here: " LIBRARY " (what needs them cannot run"));
    assert_int_equal(run_bundle("--do /bin/true"), 0);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_int_equal(run_bundle("--do /bin/false"), 1);
    assert_int_equal(run_bundle("--do"), 2);
}

/* The check gets its options unchanged, except a relative --out, and the tests; it runs in the bundle. */
TEST_IN(programs, options_are_handed_on) {
    char here[1024], expected[8192];
    assert_non_null(getcwd(here, sizeof here));
    make_bundle("toolkit/lib64");
    assert_int_equal(
        run_bundle("--budget 9 --only look --out a --out=b --out=/c --out /d --summary e --reference=f --reference /g "
                   "--summary=/h --out i=j"),
        0);
    snprintf(expected, sizeof expected,
             "<build><--budget><9><--only><look><--out><%s/a><--out=%s/b><--out=/c><--out></d><--summary><%s/e>"
             "<--reference=%s/f><--reference></g><--summary=/h><--out><%s/i=j><build/tests/test_a>%s/bundle\n",
             here, here, here, here, here, scratch_folder());
    program_expect_text(&p, expected);
    assert_int_equal(run_bundle("--do /usr/bin/env"), 0);
    snprintf(expected, sizeof expected, "\nLS_PLUGINS=%s/bundle/build/lib\n", scratch_folder());
    program_expect_text(&p, expected + 1);
    program_expect_text(&p, "LS_COMMIT=v1-3-gabc\n");
}

/* Without a git folder, figures still name the commit that they were measured with. */
TEST_IN(programs, figures_name_the_commit) {
    static bench_machine machine;
    assert_int_equal(setenv("LS_COMMIT", "v1-3-gabc", 1), 0);
    bench_describe_machine(&machine);
    unsetenv("LS_COMMIT");
    assert_string_equal(machine.commit, "v1-3-gabc");
}

/* A script in FOLDER/bin. */
static void put_command(const char *name, const char *text) {
    char path[60];
    snprintf(path, sizeof path, "bin/%s", name);
    scratch_write(path, text, strlen(text));
    assert_int_equal(chmod(scratch_path(path), 0700), 0);
}

/* No namespace, or one in which nothing can be mounted: `make bundle-check` reports it before it builds, and fails. */
TEST_IN(programs, forbidden_namespaces_are_no_pass) {
    static const char *const unshares[] = {
        "#!/bin/sh\nexit 1\n", "#!/bin/sh\nwhile [ \"$1\" != sh ] && [ \"$1\" != true ]; do shift; done\n\"$@\"\n"};
    assert_int_equal(mkdir(scratch_path("bin"), 0700), 0);
    put_command("mount", "#!/bin/sh\nexit 32\n");
    for (size_t i = 0; i < sizeof unshares / sizeof *unshares; i++) {
        put_command("unshare", unshares[i]);
        int status = program_run(&p, "PATH=%s/bin:/usr/bin:/bin /bin/sh tests/bundle.sh --allowed", scratch_folder());
        if (status != 1 || !strstr(p.err_text, "forbids mount namespaces") || !strstr(p.err_text, "was NOT checked"))
            fail_msg("%zu: status %d, %s", i, status, p.err_text);
    }
    put_command("unshare", unshares[1]);
    put_command("mount", "#!/bin/sh\nexit 0\n");
    put_command("chroot", "#!/bin/sh\nexit 0\n");
    assert_int_equal(program_run(&p, "PATH=%s/bin:/usr/bin:/bin /bin/sh tests/bundle.sh --allowed", scratch_folder()),
                     0);
}
