/* The files of the program replay: two runs write the same, their contents, and refused inputs. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define ON "replay --node=course --workload=course --precision=fp16 --replicate=copies"

static program p;

/* --- output files ------------------------------------------------------------------------------------------------- */

static void expect_same_files(const char *one, const char *other) {
    size_t nbytes, other_nbytes;
    char *text = scratch_read(one, &nbytes), *other_text = scratch_read(other, &other_nbytes);
    assert_true(nbytes > 0);
    assert_int_equal(nbytes, other_nbytes);
    assert_memory_equal(text, other_text, nbytes);
    free(text);
    free(other_text);
}

TEST_IN(programs, test_twice_gives_the_same_bytes) {
    static const char *const names[] = {"replay.csv", "replay_devices.csv", "replay.json", "gantt.csv",
                                        "timeline.json"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(program_run(&p,
                                     ON " --batch=384 --n=2,4 --mode=dp --out=%s/%d --gantt=%s/%d.gantt.csv "
                                        "--timeline=%s/%d.timeline.json",
                                     scratch_folder(), i, scratch_folder(), i, scratch_folder(), i),
                         0);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char one[64], other[64];
        snprintf(one, sizeof one, i < 3 ? "0/%s" : "0.%s", names[i]);
        snprintf(other, sizeof other, i < 3 ? "1/%s" : "1.%s", names[i]);
        expect_same_files(scratch_path(one), scratch_path(other));
    }
}

/* fit_tn reads replay's CSV: T1 from the row of one device, three more points, and the finer law. */
TEST_IN(programs, test_its_csv_is_fitted) {
    assert_int_equal(program_run(&p, ON " --batch=384 --out=%s", scratch_folder()), 0);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s --mode=dp", scratch_path("replay.csv")), 0);
    program_expect_text(&p, "DP, course, 384 samples per step on every N: 4 points, replayed on course");
    program_expect_text(&p, "finer: T1(b/N) + exposed + fixed");
    assert_int_equal(program_run(&p, ON " --per-device-batch=96 --out=%s", scratch_folder()), 0);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("replay.csv")), 0);
    program_expect_text(&p, "DDP, course, 96 samples per step on every device: 4 points, replayed on course");
}

/* One bar per line: bars of one lane do not overlap. Of several bucket sizes the first is plotted. */
TEST_IN(programs, test_bars_of_a_lane_do_not_overlap) {
    assert_int_equal(
        program_run(&p, ON " --batch=384 --n=4 --bucket-cap-mb=25,5 --gantt=%s", scratch_path("gantt.csv")), 0);
    size_t nbytes;
    char *text = scratch_read(scratch_path("gantt.csv"), &nbytes), *rest = NULL;
    double end_of[2][4][4] = {{{0}}};
    int tasks = 0, own[2] = {0}, ahead[2] = {0}; /* bars: of streams, of hosts */
    for (char *line = strtok_r(strchr(text, '\n'), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char mode[8], lane[16], phase[16];
        int n, device, step, shown, count;
        double start_ms, end_ms;
        static const char *const lanes[] = {"host", "compute", "copy", "comm"};
        assert_int_equal(sscanf(line, "%7[^,],%d,%d,%15[^,],%15[^,],%d,%d,%d,%lf,%lf", mode, &n, &device, lane, phase,
                                &step, &shown, &count, &start_ms, &end_ms),
                         10);
        assert_true(shown == 1 && step >= 0 && step < 4); /* of four */
        (step == shown ? own : ahead)[strcmp(lane, "host") == 0]++;
        tasks += count;
        int at = 0;
        while (at < 3 && strcmp(lanes[at], lane) != 0) at++;
        double *end = &end_of[strcmp(mode, "DDP") == 0][device][at];
        assert_true(start_ms >= *end - 1e-6 && end_ms > start_ms && n == 4);
        *end = end_ms;
    }
    free(text);
    assert_true(tasks > 1000);
    assert_true(ahead[1] > 0 && own[0] > ahead[0]); /* hosts launch the devices' work of the next step */
    for (int mode = 0; mode < 2; mode++)
        for (int device = 0; device < 4; device++) assert_true(end_of[mode][device][1] > 0);
}

/* Each script plots replay's files, and prints only the names of its own. */
TEST_IN(programs, test_pictures_are_drawn) {
    static const struct {
        const char *script, *data;
    } pictures[] = {{"replay_phases", "replay_devices.csv"},
                    {"memory", "replay_devices.csv"},
                    {"speedup", "replay.csv"},
                    {"overlap_bucket", "replay.csv"},
                    {"gantt", "gantt.csv"}};
    assert_int_equal(program_run(&p, ON " --batch=384 --bucket-cap-mb=25,5,1 --n=1,4 --out=%s --gantt=%s",
                                 scratch_folder(), scratch_path("gantt.csv")),
                     0);
    for (size_t i = 0; i < COUNT_OF(pictures); i++) {
        char name[40];
        size_t nbytes;
        snprintf(name, sizeof name, "%s.png", pictures[i].script);
        int status = program_run(&p, "LC_ALL=C.UTF-8 /usr/bin/env gnuplot -c plots/%s.gp %s %s", pictures[i].script,
                                 scratch_path(pictures[i].data), scratch_folder());
        if (status != 0 || count_lines(p.err_text) != 2 || !strstr(p.err_text, name))
            fail_msg("%s: status %d, and it said: %s", name, status, p.err_text);
        char *png = scratch_read(scratch_path(name), &nbytes);
        assert_true(nbytes > 10000);
        assert_memory_equal(png, "\x89PNG", 4);
        free(png);
    }
    assert_int_equal(
        program_run(&p, "/usr/bin/env gnuplot -c plots/gantt.gp %s/none.csv %s", scratch_folder(), scratch_folder()),
        1);
    assert_non_null(strstr(p.err_text, "there is no"));
}

/* A folder name with characters that a shell interprets as quotes, commands and lines, and gnuplot as commands and
 * escapes. */
#define ODD "a'$(touch${IFS}injected)'b\"`touch${IFS}injected`\\n\n|<touch<$c"

TEST_IN(programs, test_odd_folders) {
    char folder[400], one[450];
    snprintf(folder, sizeof folder, "%s/" ODD, scratch_folder());
    for (int odd = 0; odd < 2; odd++) {
        const char *to = odd ? folder : scratch_folder();
        assert_int_equal(program_run(&p, ON " --batch=384 --n=1,4 --out=%s", to), 0);
        if (program_run(&p, "LC_ALL=C.UTF-8 /usr/bin/env gnuplot -c plots/speedup.gp %s/replay.csv %s", to, to) != 0)
            fail_msg("%s", p.err_text);
        if (program_run(&p, "fit_tn --csv=%s/replay.csv --mode=dp --predict=8 --plot=%s/fit.png", to, to) != 0)
            fail_msg("%s", p.err_text);
        assert_int_equal(access("injected", F_OK), -1);
    }
    const char *const pictures[] = {"speedup.svg", "fit.svg"};
    for (size_t i = 0; i < COUNT_OF(pictures); i++) {
        snprintf(one, sizeof one, "%s/%s", folder, pictures[i]);
        expect_same_files(one, scratch_path(pictures[i]));
    }
}

/* Names that gnuplot would interpret as a program to start, relative to its working folder. */
TEST_IN(programs, test_names_that_begin_like_pipes) {
    static const char *const names[] = {"<touch", "|touch", "~root", "$data", "-", "@x"};
    char here[400], script[500];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(script, sizeof script, "%s/plots", here);
    assert_int_equal(symlink(script, scratch_path("plots")), 0);
    assert_int_equal(program_run(&p, ON " --batch=384 --n=1,4 --out=%s", scratch_folder()), 0);
    size_t nbytes;
    char *csv = scratch_read(scratch_path("replay.csv"), &nbytes);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        scratch_write(names[i], csv, nbytes);
        char picture[40];
        snprintf(picture, sizeof picture, "%s.d", names[i]);
        assert_int_equal(mkdir(scratch_path(picture), 0700), 0);
        int status = program_run(&p, "LC_ALL=C.UTF-8 /usr/bin/env -C %s gnuplot -c plots/speedup.gp %s %s",
                                 scratch_folder(), names[i], picture);
        if (status != 0) fail_msg("%s", p.err_text);
        snprintf(picture, sizeof picture, "%s.d/speedup.png", names[i]);
        assert_int_equal(access(scratch_path(picture), F_OK), 0);
    }
    free(csv);
}

/* gnuplot's functions that call a shell. */
TEST_IN(programs, test_no_script_calls_a_shell) {
    static const char *const ways[] = {"system(", "\"<", "'<", "`", "\n!", "shell"};
    DIR *plots = opendir("plots");
    assert_non_null(plots);
    for (struct dirent *entry; (entry = readdir(plots));) {
        char path[400];
        size_t nbytes;
        snprintf(path, sizeof path, "plots/%s", entry->d_name);
        if (!strstr(path, ".gp")) continue;
        char *text = scratch_read(path, &nbytes);
        for (char *line = text, *rest; (line = strtok_r(line, "\n", &rest)); line = NULL)
            for (size_t i = 0; line[0] != '#' && i < COUNT_OF(ways); i++)
                if (strstr(line, ways[i])) fail_msg("%s: %s", path, line);
        free(text);
    }
    closedir(plots);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void expect_failure(const char *text, const char *line) {
    int status = program_run(&p, "%s", line);
    if (status != 1 || count_lines(p.err_text) != 1 || p.out_text[0] || !strstr(p.err_text, text))
        fail_msg("%s: status %d, and it said: %s%s", line, status, p.out_text, p.err_text);
}

TEST_IN(programs, test_bad_files) {
    char line[400];
    expect_failure("no-such-node", "replay --node=no-such-node --workload=course --batch=8");
    expect_failure("no-such-network", "replay --node=course --workload=no-such-network --batch=8");
    scratch_write("node.json", "{\n\"devices\": ,\n}\n", 17);
    snprintf(line, sizeof line, "replay --node=%s --workload=course --batch=8", scratch_path("node.json"));
    expect_failure("node.json:2", line);
    snprintf(line, sizeof line, "replay --node=course --workload=%s --batch=8", scratch_path("node.json"));
    expect_failure("node.json:2", line);
    snprintf(line, sizeof line, "replay --trace=%s", scratch_folder());
    expect_failure(scratch_folder(), line);
    expect_failure("resnet50 does not describe how ranks can share its layers",
                   "replay --node=hgx-h200 --workload=resnet50 --batch=8 --mode=ddp --tensor=2");
    expect_failure("3 ranks do not form a grid of --tensor 2",
                   "replay --node=hgx-h200 --workload=wide --batch=8 --mode=ddp --tensor=2 --n=3");
    expect_failure("leaves 1 of 4 ranks without any", ON " --batch=9 --n=4 --mode=ddp");
    expect_failure("ms, not 5: launches under the host's lock",
                   ON " --batch=8 --mode=single --calibrate-t1=5 --host-lock=100");
    /* before anything is built or written */
    snprintf(line, sizeof line,
             "replay --node=dgx1-v100 --workload=resnet50 --batch=65536 --n=1,65536 --mode=ddp --out=%s/never",
             scratch_folder());
    expect_failure("tasks; at most", line);
    assert_int_equal(access(scratch_path("never"), F_OK), -1);
    expect_failure("16", "replay --node=course --workload=course --batch=64 --n=16 --mode=dp"); /* the node has 8 */
    snprintf(line, sizeof line, ON " --batch=8 --json=%s/none/replay.json", scratch_folder());
    expect_failure("none", line);
    scratch_write("file", "", 0);
    snprintf(line, sizeof line, ON " --batch=8 --out=%s", scratch_path("file"));
    expect_failure("file", line);
    assert_int_equal(program_run(&p, "STREAMS=full " ON " --batch=8"), 1);
    assert_non_null(strstr(p.err_text, "cannot write all of the results to standard output"));
}

/* In one line, before anything is written. */
TEST_IN(programs, test_wrong_usage) {
    static const char *const lines[] = {"replay",
                                        "replay --node=course",
                                        "replay --workload=course --batch=8",
                                        "replay --node=course --workload=course --trace=x --batch=8",
                                        "replay --node=course --workload=resnet50",
                                        ON " --batch=8 --per-device-batch=8",
                                        ON " --batch=8 --tensor=2",
                                        ON " --batch=8 --mode=ddp --sequence-parallel",
                                        "replay --node=course --trace=x --mode=ddp --tensor=2",
                                        ON " --batch=4 --n=8",
                                        ON " --batch=0",
                                        ON " --per-device-batch=0",
                                        ON " --batch=8 --calibrate-t1=0",
                                        ON " --batch=8 --n=0",
                                        ON " --batch=8 --n=two",
                                        ON " --batch=-8",
                                        ON " --batch=nan",
                                        ON " --batch=8 --mode=single --n=2",
                                        ON " --batch=8 --bucket-cap-mb=0",
                                        ON " --batch=8 --bucket-cap-mb=1,",
                                        ON " --batch=8 --bucket-cap-mb=1;2",
                                        ON " --batch=8 --bucket-cap-mb=nan",
                                        ON " --batch=8 --host-lock=-2",
                                        ON " --batch=8 --host-lock=-0.5",
                                        ON " --batch=8 --steps=0",
                                        ON " --batch=8 --precision=int32",
                                        ON " --batch=8 --algorithm=carrier-pigeon",
                                        ON " --batch=8 --timeline=both.json",
                                        ON " --batch=8 --vary",
                                        "replay --as-recorded --workload=course",
                                        "replay --as-recorded --trace=x --vary",
                                        "replay --trace=x --n=2",
                                        "replay --trace=x --batch=7",
                                        "replay --as-recorded --trace=x --out=y",
                                        "replay --as-recorded --trace=x --gantt=y.csv"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        int status = program_run(&p, "%s", lines[i]);
        if (status != 2 || count_lines(p.err_text) != 1 || p.out_text[0])
            fail_msg("%s: status %d, and it said: %s%s", lines[i], status, p.out_text, p.err_text);
    }
    assert_int_equal(program_run(&p, "replay --help"), 0);
    program_expect_text(&p, "--calibrate-t1=MS");
}
