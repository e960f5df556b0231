/* --device-memory: which device runs out of memory first, and the message. DataParallel's device 0 holds the others'
 *                  outputs and gradients, and the optimizer's state; with the same cap, DistributedDataParallel, whose
 *                  devices are
 * all alike, still runs. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device/device.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

enum { DEVICES = 4 };

static const char *const dp = "dp_train --devices 4 --steps 3";
static const char *const ddp = "ddp_train --spawn 4 --steps 3";

/* Peak bytes of each device, in all categories together. */
static void read_peaks(const char *line, double peaks[DEVICES]) {
    static program p;
    size_t nbytes;
    program_run(&p, "%s --summary %s", line, scratch_path("summary"));
    assert_int_equal(p.status, 0);
    char *text = scratch_read(scratch_path("summary"), &nbytes);
    cJSON *wrapper = cJSON_Parse(text);
    const cJSON *table = cJSON_GetObjectItem(cJSON_GetObjectItem(wrapper, "summary"), "device_table");
    assert_int_equal(cJSON_GetArraySize(table), DEVICES);
    for (int d = 0; d < DEVICES; d++) {
        const cJSON *row = cJSON_GetArrayItem(table, d);
        assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "device")) == d);
        peaks[d] = cJSON_GetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(row, "peak_bytes"), "total"));
        assert_true(peaks[d] > 0);
    }
    cJSON_Delete(wrapper);
    free(text);
}

static double largest(const double *values, int count) {
    double most = values[0];
    for (int i = 1; i < count; i++) most = values[i] > most ? values[i] : most;
    return most;
}

TEST_IN(programs, test_device_0_of_dataparallel_runs_out_first) {
    static program p;
    double of_dp[DEVICES], of_ddp[DEVICES];
    read_peaks(dp, of_dp);
    read_peaks(ddp, of_ddp);
    assert_true(of_dp[0] > largest(of_dp + 1, DEVICES - 1));
    assert_true(of_dp[0] > largest(of_ddp, DEVICES));
    double cap = (of_dp[0] + largest(of_ddp, DEVICES)) / 2;
    program_run(&p, "%s --device-memory %.0f", dp, cap);
    if (p.status != 1 || !strstr(p.err_text, "error: device 0 is out of memory: ") || count_lines(p.err_text) != 1)
        fail_msg("with %.0f bytes DataParallel ended with %d: %s", cap, p.status, p.err_text);
    program_run(&p, "%s --device-memory %.0f", ddp, cap);
    if (p.status != 0) fail_msg("with %.0f bytes DDP ended with %d: %s", cap, p.status, p.err_text);
    /* a cap equal to the peak is enough, and no smaller one */
    program_run(&p, "%s --device-memory %.0f", dp, of_dp[0]);
    assert_int_equal(p.status, 0);
    program_run(&p, "%s --device-memory %.0f", dp, of_dp[0] - 1);
    assert_int_equal(p.status, 1);
}

/* The message names the allocation that did not fit, and the option that makes it smaller. */
TEST_IN(programs, test_the_message_says_what_to_lower) {
    static const struct {
        const char *line, *category, *advice;
    } cases[] = {
        {"dp_train --single --device-memory 500K", "(parameter), ", "; use a smaller model; or"},
        {"dp_train --single --batch-size 4096 --device-memory 1M", "(activation), ", "; lower the batch size"},
        {"dp_train --devices 2 --model mlp:10,1000 --batch-size 1000 --device-memory 4M --data random:1",
         "(gathered output), ", "name another --output-device, or use ddp_train"},
        {"ddp_train --device-memory 1200K", "(bucket), ", "the buckets hold all its gradients"},
    };
    static program p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run(&p, "%s --steps 3 --quiet", cases[i].line);
        if (p.status != 1 || !strstr(p.err_text, "device 0 is out of memory: ") || count_lines(p.err_text) != 1 ||
            !strstr(p.err_text, cases[i].category) || !strstr(p.err_text, cases[i].advice) ||
            !strstr(p.err_text, "; or raise --device-memory\n"))
            fail_msg("%s ended with %d: %s", cases[i].line, p.status, p.err_text);
    }
}

TEST_IN(programs, test_every_category_has_its_advice) {
    static const char *const advice[LS_MEMORY_COUNT] = {
        [LS_MEMORY_PARAMETER] = "smaller model",
        [LS_MEMORY_GRADIENT] = "ddp_train, which gathers none",
        [LS_MEMORY_OPTIMIZER] = "less state",
        [LS_MEMORY_ACTIVATION] = "batch size",
        [LS_MEMORY_INPUT] = "its own samples only",
        [LS_MEMORY_GATHERED_OUTPUT] = "--output-device",
        [LS_MEMORY_BUCKET] = "the buckets hold all its gradients",
        [LS_MEMORY_WORKSPACE] = "lower the batch size",
    };
    ls_device *device;
    ls_device_options options = {
        .kind = LS_DEVICE_CPU, .index = 6, .devices_on_node = 1, .memory_capacity_bytes = 1000};
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        char category[160];
        void *memory;
        snprintf(category, sizeof category,
                 "device 6 is out of memory: 1001 bytes asked for a test (%s), 0 of 1000 bytes in use",
                 ls_memory_name((ls_memory_category)c));
        assert_int_equal(ls_device_alloc(device, (ls_memory_category)c, 1001, "a test", &memory), LS_ERR_NO_MEMORY);
        scratch_expect_error(category, advice[c]);
    }
    ls_device_close(device);
}
