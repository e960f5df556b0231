/* Built programs beside the real ones: the same buckets, and the memory that the programs say they hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/buckets.h"
#include "labs/replay/engine/build_internal.h"
#include "tests/base/scratch.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/reduced.h"
#include "tests/programs/program.h"
#include "tests/replay/model_work.h"

/* --- buckets ----------------------------------------------------------------------------------------------------- */

struct bucket_case {
    const char *model;
    double cap_mb;
};

/* 4.00390625 MiB: a weight of "deep" and its bias, to the byte. */
static const struct bucket_case bucket_cases[] = {{"convnet", 25},   {"mlp", 25},          {"deep", 25},
                                                  {"deep", 5},       {"deep", 4.00390625}, {"deep", 0.001},
                                                  {"convnet", 0.01}, {"wide", 25}};

/* Against the function that the reducer asks, bucket by bucket and parameter by parameter. */
static void buckets_are_those_of_the_programs_function(void **state) {
    (void)state;
    static struct model_work m;
    for (size_t c = 0; c < sizeof bucket_cases / sizeof *bucket_cases; c++) {
        size_t nbytes[MODEL_WORK_MAX], at = 0;
        int64_t order[MODEL_WORK_MAX];
        model_work_make(&m, bucket_cases[c].model, 0);
        size_t count = (size_t)m.workload.parameter_count;
        for (size_t p = 0; p < count; p++) {
            nbytes[p] = m.counts[p] * sizeof(float);
            order[p] = m.ready[p];
        }
        struct ls_build_options o = ls_build_defaults(LS_BUILD_DDP, 2, 64);
        o.bucket_bytes = (uint64_t)(bucket_cases[c].cap_mb * 1048576);
        size_t first = o.bucket_bytes < DDP_FIRST_BUCKET_BYTES ? o.bucket_bytes : DDP_FIRST_BUCKET_BYTES;
        assert_true(o.first_bucket_bytes == DDP_FIRST_BUCKET_BYTES);
        const size_t limits[] = {first, o.bucket_bytes};
        struct ddp_buckets wanted;
        struct ls_build_buckets got;
        assert_int_equal(ddp_assign_buckets(&wanted, nbytes, order, count, limits, 2, false), LS_OK);
        assert_int_equal(ls_build_assign_buckets(&got, &m.workload, &o), LS_OK);
        assert_int_equal(got.count, wanted.bucket_count);
        for (int k = 0; k < got.count; k++) {
            assert_int_equal(got.members[k], wanted.sizes[k]);
            for (size_t i = 0; i < wanted.sizes[k]; i++) assert_int_equal(got.bucket_of[wanted.parameters[at++]], k);
        }
        ddp_buckets_free(&wanted);
        ls_build_free_buckets(&got);
    }
}

/* Against a reducer at work: its second backward has the buckets. In a rank's process. */
static void compare_with_reducer(struct rank *rank) {
    const struct bucket_case *c = rank->argument;
    static struct model_work m;
    struct reduced r;
    struct ls_build_buckets got;
    model_work_make(&m, c->model, 0);
    struct ls_build_options o = ls_build_defaults(LS_BUILD_DDP, 2, 64);
    o.bucket_bytes = (uint64_t)(c->cap_mb * 1048576);
    CHECK(rank_open(rank, "inline", "naive", REDUCED_TIMEOUT_S) == LS_OK);
    CHECK(ls_device_bind_thread(rank->device) == LS_OK);
    reduced_create(rank, &r, c->model, 2, &(ddp_reducer_options){.bucket_cap_mb = c->cap_mb, .overlap = true});
    reduced_turn(rank, &r, 2, 0);
    reduced_turn(rank, &r, 2, 1);
    CHECK(ls_build_assign_buckets(&got, &m.workload, &o) == LS_OK);
    CHECK(bucket_count(r.reducer) == (size_t)got.count);
    for (int k = 0; k < got.count; k++) {
        size_t nbytes = 0;
        for (int p = 0; p < m.workload.parameter_count; p++) {
            if (got.bucket_of[p] == k) nbytes += m.counts[p] * sizeof(float);
        }
        CHECK(bucket_nbytes(r.reducer, (size_t)k) == nbytes);
    }
    ls_build_free_buckets(&got);
    reduced_destroy(&r);
    reduced_rank_close(rank);
}

static void buckets_are_those_of_a_real_reducer(void **state) {
    (void)state;
    run_good_ranks(2, compare_with_reducer, &bucket_cases[0]);
    run_good_ranks(2, compare_with_reducer, &bucket_cases[3]);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Peak bytes of each device by category, as the program says. */
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

/* All categories but the workspace, of which the libraries' scratch is not known: there is no less than predicted. */
static void compare_memory(const struct model_work *m, const struct ls_build_options *o, const char *line,
                           double peaks[][8]) {
    ls_node *node;
    assert_int_equal(ls_node_open(&node, "course"), LS_OK);
    ls_node_change_host(node)->runs_compute = true; /* as the programs' CPU devices */
    for (int d = 0; d < o->devices; d++) {
        struct ls_memory_prediction p;
        ls_build_memory(&p, &m->workload, node, o, d);
        const double predicted[7] = {p.parameter, p.gradient,        p.optimizer, p.activation,
                                     p.input,     p.gathered_output, p.bucket};
        /* saved statistics of batch norm do not grow with the batch: 2 floats a channel, which a workload has no
         * place for */
        double statistics = m->workload.buffer_bytes;
        for (int c = 0; c < 7; c++) {
            double wanted = predicted[c] + (c == 3 ? statistics : 0);
            if (!(fabs(peaks[d][c] - wanted) <= 0)) {
                fail_msg("%s: device %d, category %d: %.0f bytes, predicted %.0f", line, d, c, peaks[d][c], wanted);
            }
        }
        assert_true(peaks[d][7] >= p.workspace);
    }
    ls_node_close(node);
}

static void devices_hold_what_is_predicted(void **state) {
    (void)state;
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
                struct ls_build_options o = ls_build_defaults(ddp ? LS_BUILD_DDP : LS_BUILD_DP, n, batch);
                read_peaks(line, n, peaks);
                compare_memory(&m, &o, line, peaks);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_those_of_the_programs_function),
        cmocka_unit_test(buckets_are_those_of_a_real_reducer),
        cmocka_unit_test_setup_teardown(devices_hold_what_is_predicted, programs_setup, programs_teardown),
    };
    return cmocka_run_group_tests_name("build programs", tests, NULL, NULL);
}
