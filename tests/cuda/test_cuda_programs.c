/* The programs on GPUs, as a user runs them: which devices they use, what they print about them, and that the results
 * are the same however the work is divided. The GPUs are those of tests/cuda_on_cpu, as many as the environment in
 * front of each command says. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"
#include "tests/programs/resident_runs.h"
#include "tests/programs/small_images.h"

/* Small and short: a CPU does the work. */
#define SMALL "--model mlp:784,8,10 --batch-size 8 --steps 4 --no-evaluate"
#define ONE_STEP SMALL " --steps 1"

static program p;

static void expect_success(const char *line) {
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

static void expect_in(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

/* --- plug-ins that are loaded ------------------------------------------------------------------------------------- */

/* The dynamic loader prints the libraries that it opens on stderr. */
static void expect_loaded(const char *line, bool expected) {
    expect_success(line);
    if ((strstr(p.err_text, "/ls_cuda.so") != NULL) != expected)
        fail_msg("%s: ls_cuda.so is %s", line, expected ? "not loaded" : "loaded");
}

TEST_IN(programs, cpu_runs_load_nothing_of_cuda) {
    expect_loaded("LD_DEBUG=files CUDA_ON_CPU_DEVICES=1 dp_train --single " ONE_STEP, true);
    expect_loaded("LD_DEBUG=files CUDA_ON_CPU_DEVICES=1 dp_train --device-kind cpu --single " ONE_STEP, false);
    expect_loaded("LD_DEBUG=files CUDA_ON_CPU_DEVICES=1 ddp_train --device-kind cpu --spawn 2 " ONE_STEP, false);
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!driver) expect_loaded("LD_DEBUG=files LS_PLUGINS= dp_train --single " ONE_STEP, false); /* auto */
    if (driver) dlclose(driver);
}

/* --- devices that are used, and the output about them ------------------------------------------------------------- */

TEST_IN(programs, the_first_line_says_on_what) {
    static const struct {
        const char *line, *first;
    } cases[] = {
        {"CUDA_ON_CPU_DEVICES=2 dp_train " ONE_STEP, "DataParallel on 2 GPUs ("},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --devices 1 " ONE_STEP, "DataParallel on 1 GPU ("},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --device-ids 1,0,1 " ONE_STEP, "DataParallel on 3 devices on 2 GPUs ("},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --single " ONE_STEP, "single device on 1 GPU ("},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --device-kind cpu --devices 2 " ONE_STEP, "DataParallel on 2 CPU devices: "},
        {"CUDA_ON_CPU_DEVICES=0 dp_train --devices 2 " ONE_STEP, "DataParallel on 2 CPU devices: "},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --quiet --spawn 2 " ONE_STEP, "DistributedDataParallel on 2 GPUs ("},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --quiet --spawn 2 --device-ids 1,1 " ONE_STEP,
         "DistributedDataParallel on 2 devices on 1 GPU ("},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train " ONE_STEP, "DistributedDataParallel on 1 GPU ("},
        {"CUDA_ON_CPU_DEVICES=2 CUDA_VISIBLE_DEVICES=1 dp_train " ONE_STEP, "DataParallel on 1 GPU ("},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        expect_success(cases[i].line);
        if (strncmp(p.out_text, cases[i].first, strlen(cases[i].first)) != 0)
            fail_msg("%s begins with: %s", cases[i].line, p.out_text);
        assert_string_equal(p.err_text, "");
        expect_in(p.out_text, strstr(cases[i].first, "GPU") ? "cuda streams" : "inline streams");
        assert_null(strstr(p.out_text, "no GPU: ")); /* they were found, or not expected */
    }
}

/* If a GPU is expected, the first line says why there is none: with --device-kind auto only, and by one process. */
TEST_IN(programs, the_first_line_says_why_not_on_gpus) {
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"LS_PLUGINS=/no/such/folder dp_train --devices 2 ",
         "there is no /no/such/folder/ls_cuda.so; make builds the file where nvcc is found"},
        {"LS_PLUGINS=/no/such/folder ddp_train --quiet --spawn 2 ",
         "there is no /no/such/folder/ls_cuda.so; make builds the file where nvcc is found"},
        {"CUDA_ON_CPU_DRIVER=none dp_train --devices 2 ", "there is no NVIDIA driver"},
        {"CUDA_ON_CPU_DRIVER=old dp_train --single ", "the NVIDIA driver is too old"},
        {"CUDA_ON_CPU_DRIVER=old ddp_train --quiet --spawn 2 ", "the NVIDIA driver is too old"},
        {"CUDA_ON_CPU_DRIVER=old dp_train --device-kind cpu --devices 2 ", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char line[300], wanted[200];
        snprintf(line, sizeof line, "%s" ONE_STEP, cases[i].line);
        expect_success(line);
        size_t length = strcspn(p.out_text, "\n");
        const char *said = strstr(p.out_text, " (no GPU: ");
        snprintf(wanted, sizeof wanted, " (no GPU: %s", cases[i].why ? cases[i].why : "");
        if (!cases[i].why && said) fail_msg("%s begins with: %s", line, p.out_text);
        if (cases[i].why && (!said || said > p.out_text + length || strncmp(said, wanted, strlen(wanted)) != 0))
            fail_msg("%s begins with: %s", line, p.out_text);
        assert_int_equal(p.err_text[0], '\0');
    }
    /* the actual machine, which may have no GPU */
    bool expected = access("/dev/nvidia0", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
    char plugin[700];
    snprintf(plugin, sizeof plugin, "%s/lib/ls_cuda.so", build_folder());
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver) dlclose(driver);
    if (expected || driver || access(plugin, F_OK) == 0) return;
    expect_success("LS_PLUGINS= dp_train --devices 2 " ONE_STEP);
    assert_null(strstr(p.out_text, "no GPU"));
}

/* Options that have no effect in this run: one line each, and the run continues. */
TEST_IN(programs, what_has_no_effect_is_noted) {
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"CUDA_ON_CPU_DEVICES=0 dp_train --tf32 " ONE_STEP, "dp_train: --tf32 has no effect: "},
        {"CUDA_ON_CPU_DEVICES=0 dp_train --debug-launches " ONE_STEP, "dp_train: --debug-launches has no effect: "},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --device-kind cpu --debug-launches " ONE_STEP,
         "ddp_train[rank 0]: --debug-launches has no effect: "},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --allreduce auto " ONE_STEP, NULL},
        {"CUDA_ON_CPU_DEVICES=1 dp_train --cuda-graph " SMALL " --steps 3", "dp_train: --cuda-graph had no effect: "},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --cuda-graph " SMALL " --steps 2",
         "ddp_train[rank 0]: --cuda-graph had no effect: "},
        {"CUDA_ON_CPU_DEVICES=1 dp_train --cuda-graph " SMALL, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        expect_success(cases[i].line);
        if (cases[i].said) expect_in(p.err_text, cases[i].said);
        if (count_lines(p.err_text) != (cases[i].said ? 1 : 0)) fail_msg("%s says: %s", cases[i].line, p.err_text);
    }
}

/* The path of gradients is printed by default if it is not NCCL, and everything else on request. One rank prints it. */
TEST_IN(programs, the_backend_is_told) {
    static const struct {
        const char *line, *said;
        int lines;
    } cases[] = {
        {"CUDA_ON_CPU_DEVICES=1 ddp_train --spawn 2 " ONE_STEP,
         "ddp_train[rank 0]: 2 ranks share 1 GPU: gradients are staged through host memory (NCCL needs a GPU per "
         "rank)\n",
         1},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 4 " ONE_STEP, "4 ranks share 2 GPUs: ", 1},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --allreduce naive " ONE_STEP,
         "--allreduce naive: gradients are staged", 1},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 " ONE_STEP, "", 0},
        {"CUDA_ON_CPU_DEVICES=1 ddp_train --spawn 2 --backend shm " ONE_STEP, "", 0},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --verbose --spawn 2 " ONE_STEP, "ddp_train[rank 0]: backend: nccl\n", 2},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --verbose --spawn 2 --backend shm " ONE_STEP,
         "backend: shm, staged, without overlap\n", 2},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --verbose --replicate nccl " ONE_STEP, "CUDA_MODULE_LOADING=EAGER: ", 2},
        {"CUDA_ON_CPU_DEVICES=2 CUDA_MODULE_LOADING=LAZY dp_train --verbose --replicate nccl " ONE_STEP,
         "CUDA_MODULE_LOADING=LAZY: ", 2},
        {"CUDA_ON_CPU_DEVICES=1 ddp_train --verbose " ONE_STEP, "device-kind auto takes GPUs: there is 1\n", 2},
        {"CUDA_ON_CPU_DEVICES=3 dp_train --verbose " ONE_STEP, "dp_train: device-kind auto takes GPUs: there are 3\n",
         1},
        {"CUDA_ON_CPU_DEVICES=0 dp_train --verbose " ONE_STEP, "dp_train: device-kind auto takes the CPU: ", 1},
        {"CUDA_ON_CPU_DRIVER=none dp_train --verbose " ONE_STEP, "dp_train: device-kind auto takes the CPU: ", 1},
        {"CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_DRIVER=old ddp_train --spawn 2 --verbose " ONE_STEP,
         "auto takes the CPU: ", 2},
        {"LS_PLUGINS=/no/such/folder dp_train --verbose " ONE_STEP,
         "auto takes the CPU: there is no /no/such/folder/ls_cuda.so", 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        expect_success(cases[i].line);
        expect_in(p.err_text, cases[i].said);
        if (count_lines(p.err_text) != cases[i].lines) fail_msg("%s says: %s", cases[i].line, p.err_text);
    }
}

TEST_IN(programs, the_summary_names_the_gpus) {
    expect_success("CUDA_ON_CPU_DEVICES=2 dp_train --device-ids 0,1,1 --summary=- " ONE_STEP);
    expect_in(p.out_text, "(enqueueing)"); /* the table's heading */
    const char *line = strstr(p.out_text, "{\"summary\"");
    assert_non_null(line);
    cJSON *wrapper = cJSON_Parse(line);
    const cJSON *summary = cJSON_GetObjectItem(wrapper, "summary");
    static const char *const texts[][2] = {
        {"device_kind", "cuda"}, {"streams", "cuda"}, {"backend", "copies"}, {"phase_times", "enqueueing"}};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(summary, texts[i][0]));
        if (!text || strcmp(text, texts[i][1]) != 0) fail_msg("%s is %s", texts[i][0], text ? text : "missing");
    }
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(summary, "gpus")) == 2);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(summary, "device_names")), 3);
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItem(summary, "device_names"), 2));
    assert_non_null(name);
    expect_in(p.out_text, name);
    cJSON_Delete(wrapper);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* The text after "weights " in the last line. */
static const char *weights_of(const char *line) {
    static char kept[4][32];
    static int next;
    expect_success(line);
    const char *at = strstr(p.out_text, "weights ");
    assert_non_null(at);
    char *weights = kept[next++ % 4];
    snprintf(weights, sizeof kept[0], "%.*s", (int)strcspn(at, "\n"), at);
    return weights;
}

TEST_IN(programs, dp_and_ddp_end_with_the_same_weights) {
    const char *dp = weights_of("CUDA_ON_CPU_DEVICES=2 dp_train " SMALL);
    assert_string_equal(dp, weights_of("CUDA_ON_CPU_DEVICES=2 dp_train " SMALL));
    assert_string_equal(dp, weights_of("CUDA_ON_CPU_DEVICES=1 dp_train --device-ids 0,0 " SMALL));
    assert_string_equal(dp, weights_of("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_STREAMS=shuffle:3 dp_train " SMALL));
    assert_string_equal(dp, weights_of("CUDA_ON_CPU_DEVICES=2 dp_train --debug-launches --no-pin-memory " SMALL));
    static const char *const ddp[] = {
        "CUDA_ON_CPU_DEVICES=1 ddp_train --quiet --spawn 2 --shard contiguous " SMALL,
        "CUDA_ON_CPU_DEVICES=2 ddp_train --quiet --spawn 2 --shard contiguous --backend shm --allreduce naive " SMALL,
        "CUDA_ON_CPU_DEVICES=2 ddp_train --quiet --spawn 2 --shard contiguous --backend nccl " SMALL, /* a + b is b + a */
    };
    for (size_t i = 0; i < COUNT_OF(ddp); i++) assert_string_equal(dp, weights_of(ddp[i]));
}

TEST_IN(programs, options_of_gpus_arrive) {
    const char *plain = weights_of("CUDA_ON_CPU_DEVICES=1 dp_train " SMALL);
    assert_string_equal(plain, weights_of("CUDA_ON_CPU_DEVICES=1 dp_train --cuda-graph " SMALL));
    assert_string_equal(plain, weights_of("CUDA_ON_CPU_DEVICES=1 ddp_train --cuda-graph " SMALL));
    assert_string_not_equal(plain, weights_of("CUDA_ON_CPU_DEVICES=1 dp_train --tf32 " SMALL));
    assert_string_equal(weights_of("CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 " SMALL),
                        weights_of("CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --cuda-graph " SMALL));
}

/* When a micro-batch is launched as a graph, the host does not see which gradients it has written, nor to which it will
 * add. */
TEST_IN(programs, graphs_of_shards_have_their_bits) {
#define SHARDS                                                                                                         \
    "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --bucket-cap-mb 0.005 --model mlp:784,8,10 --batch-size 12 --steps 6 "
    const char *one = weights_of(SHARDS "--no-evaluate");
    assert_string_equal(one, weights_of(SHARDS "--no-evaluate --shard-state 1 --cuda-graph"));
    assert_string_equal(one, weights_of(SHARDS "--no-evaluate --shard-state 2 --cuda-graph"));
    const char *parts = weights_of(SHARDS "--no-evaluate --shard-state 2 --accumulate 3");
    assert_string_equal(parts, weights_of(SHARDS "--no-evaluate --shard-state 2 --accumulate 3 --cuda-graph"));
#undef SHARDS
}

TEST_IN(programs, nccl_repeats_itself) {
    static const char *const lines[] = {
        "CUDA_ON_CPU_DEVICES=4 ddp_train --spawn 4 " SMALL,
        "CUDA_ON_CPU_DEVICES=4 dp_train --replicate nccl " SMALL,
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        const char *first = weights_of(lines[i]);
        assert_string_equal(first, weights_of(lines[i]));
    }
}

/* With the options that read ranks and weights: hashes, buffers, the accuracy, a file. */
TEST_IN(programs, everything_at_once) {
    static const char *const lines[] = {
        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --debug-ranks --find-unused",
        "CUDA_ON_CPU_DEVICES=1 ddp_train --spawn 2 --debug-ranks --uneven --join",
        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --debug-ranks --shard-state 1 --precision fp16",
        "CUDA_ON_CPU_DEVICES=1 ddp_train --spawn 2 --debug-ranks --shard-state 2 --accumulate 2",
        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --debug-ranks --shard-state 3 --precision fp16",
        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --debug-ranks --offload optimizer --precision fp16",
        "CUDA_ON_CPU_DEVICES=2 dp_train --output-device 1",
        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --debug-ranks --sync-bn --no-evaluate",
        "CUDA_ON_CPU_DEVICES=2 dp_train --sync-bn --replicate nccl --no-evaluate",
    };
    static const char network[] = "input 1x8x8\nconv 2 kernel 3 padding 1\nbatchnorm\nrelu\nflatten\nlinear 10\n";
    scratch_write("a.net", network, sizeof network - 1);
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        char line[900];
        bool normalizes = strstr(lines[i], "--sync-bn") != NULL;
        snprintf(line, sizeof line, "%s --model %s --batch-size 4 --steps 2 --data %s --save %s --metrics %s", lines[i],
                 normalizes ? scratch_path("a.net") : "mlp:64,8,10", small_images("images", 40, 20),
                 scratch_path("weights"), scratch_path("metrics"));
        expect_success(line);
        if (!strstr(line, "--no-evaluate")) expect_in(p.out_text, "test accuracy ");
        expect_in(p.out_text, "final loss ");
        if (!strstr(line, "--debug-ranks")) continue;
        expect_in(p.err_text, "rank 1 of 2: pid ");
        expect_in(p.err_text, ", GPU 0 (");
    }
}

/* A graph is recorded for each of the two places of a batch; a single batch is in both places of a GPU. */
TEST_IN(programs, resident_batches_give_the_same_losses) {
    static const char *const lines[] = {
        "CUDA_ON_CPU_DEVICES=1 dp_train --single",
        "CUDA_ON_CPU_DEVICES=1 dp_train --single --cuda-graph",
        "CUDA_ON_CPU_DEVICES=2 dp_train",
        "CUDA_ON_CPU_DEVICES=1 dp_train --cuda-graph",
        "CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_STREAMS=shuffle:3 ddp_train --spawn 2",
        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --cuda-graph",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        resident_expect_same(lines[i], 1);
        resident_expect_same(lines[i], 3);
    }
}

/* --- the host ----------------------------------------------------------------------------------------------------- */

/* Every launch takes the emulated interpreter's lock in turn, including NCCL's operations and graphs. */
TEST_IN(programs, launches_of_all_kinds_take_turns) {
    static const struct {
        const char *program, *launch;
    } cases[] = {
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --backend nccl " SMALL, "launch all_reduce"},
        {"CUDA_ON_CPU_DEVICES=1 dp_train --single --cuda-graph " SMALL " --steps 8", "launch graph"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char line[600];
        snprintf(line, sizeof line, "%s --host-lock 2 --quiet --trace %s", cases[i].program, scratch_path("trace"));
        expect_success(line);
        char *text = scratch_read_text("trace/rank_0.pt.trace.json");
        expect_in(text, cases[i].launch);
        int launches = count_text(text, "\"launch\": \"launch ") + count_text(text, "\"name\": \"launch ");
        assert_int_equal(count_text(text, "\"name\": \"unlock host lock\""), launches);
        free(text);
    }
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

/* Whichever path messages take, and in every order of the streams. */
TEST_IN(programs, stages_end_as_one_gpu_does) {
    static const char *const line = "--model mlp:784,8,8,10 --batch-size 18 --accumulate 4 --steps 4 --quiet";
    static const char *const backends[] = {"shm", "nccl"}, *const schedules[] = {"gpipe", "1f1b"};
    char hash[2][PROGRAM_HASH + 1], command[400];
    snprintf(command, sizeof command, "CUDA_ON_CPU_DEVICES=1 dp_train --single %s", line);
    expect_success(command);
    program_read_hash(&p, hash[0]);
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command,
                 "CUDA_ON_CPU_STREAMS=shuffle:%d CUDA_ON_CPU_DEVICES=3 ddp_train --spawn 3 --pipeline 3 --backend %s "
                 "--schedule %s %s",
                 i + 1, backends[i / 2], schedules[i % 2], line);
        expect_success(command);
        program_read_hash(&p, hash[1]);
        assert_string_equal(hash[0], hash[1]);
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
