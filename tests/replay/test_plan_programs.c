/* The memory of a replay, compared with the programs' own counts. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/record/record.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/replay/model_work.h"

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* The peak bytes of each device by category, from the program. */
static void read_peaks(const char *line, int devices, double peaks[][8]) {
    static const char *const names[] = {"parameter", "gradient",        "optimizer", "activation",
                                        "input",     "gathered output", "bucket",    "workspace"};
    static program p;
    size_t nbytes;
    program_run(&p, "%s --summary %s", line, scratch_path("summary"));
    if (p.status != 0) fail_msg("%s: %s", line, p.err_text);
    char *text = scratch_read(scratch_path("summary"), &nbytes);
    cJSON *wrapper = cJSON_Parse(text);
    const cJSON *table = cJSON_GetObjectItem(cJSON_GetObjectItem(wrapper, "summary"), "device_table");
    assert_int_equal(cJSON_GetArraySize(table), devices);
    for (int d = 0; d < devices; d++) {
        const cJSON *row = cJSON_GetObjectItem(cJSON_GetArrayItem(table, d), "peak_bytes");
        for (int c = 0; c < 8; c++) peaks[d][c] = cJSON_GetNumberValue(cJSON_GetObjectItem(row, names[c]));
    }
    cJSON_Delete(wrapper);
    free(text);
}

/* All categories; the workspace is only bounded from below, since the libraries' scratch is unknown. */
static void compare_memory(const struct model_work *m, const struct ls_plan *o, const char *line, double peaks[][8]) {
    ls_node *node;
    assert_int_equal(ls_node_open(&node, "course"), LS_OK);
    ls_node_change_host(node)->runs_compute = true; /* like the programs' CPU devices */
    struct record_memory memory;
    assert_int_equal(record_memory(&memory, &m->workload, node, o), LS_OK);
    for (int d = 0; d < o->devices; d++) {
        const ls_memory_report *held = d == 0 ? &memory.first : &memory.last;
        /* saved statistics of batch norm do not grow with the batch: 2 floats per channel, which a workload cannot
         * express */
        double statistics = m->workload.buffer_bytes;
        for (int c = 0; c < LS_MEMORY_WORKSPACE; c++) {
            double wanted = (double)held->peak_bytes[c] + (c == LS_MEMORY_ACTIVATION ? statistics : 0);
            if (!(fabs(peaks[d][c] - wanted) <= 0)) {
                fail_msg("%s: device %d, category %d: %.0f bytes, predicted %.0f", line, d, c, peaks[d][c], wanted);
            }
        }
        assert_true(peaks[d][LS_MEMORY_WORKSPACE] >= (double)held->peak_bytes[LS_MEMORY_WORKSPACE]);
    }
    ls_node_close(node);
}

TEST_IN(programs, devices_hold_what_is_counted) {
    static const char *const models[] = {"mlp", "convnet"};
    static const struct {
        const char *name;
        int states;
    } optimizers[] = {{"sgd", 0}, {"adam", 2}};
    static struct model_work m;
    double peaks[4][8];
    for (int n = 1; n <= 4; n *= 2) {
        for (size_t i = n == 2 ? 1 : 0; i < (n == 1 ? 1 : 2);
             i++) { /* both models on 4 devices, one of them on fewer */
            for (int ddp = 0; ddp < 2; ddp++) {
                char line[200];
                int batch = 62; /* 4 devices: 16 16 16 14; ranks of up to 16 */
                const char *optimizer =
                    optimizers[(i + (size_t)n) % 2].name; /* each pair of model and mode sees both */
                model_work_make(&m, models[i], optimizers[(i + (size_t)n) % 2].states);
                const char *start = ddp ? "ddp_train --shard contiguous --spawn" : "dp_train --devices";
                snprintf(
                    line, sizeof line,
                    "%s %d --device-kind cpu --model %s --optimizer %s --batch-size %d --steps 2 --no-evaluate --quiet",
                    start, n, models[i], optimizer, batch);
                struct ls_plan o = ls_plan_defaults(ddp ? LS_PLAN_DDP : LS_PLAN_DP, n, batch);
                read_peaks(line, n, peaks);
                compare_memory(&m, &o, line, peaks);
            }
        }
    }
}
