/* The schedules of a pipeline: PyTorch's orders, and invariants for any number of stages and of micro-batches. */
#include "ddp_procs/schedule.h"

#include <stdio.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/lists.h"

enum { TEXT = 1024, MOST_STAGES = 9, MOST = 12 };

static const char *text_of(const cJSON *object, const char *field) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, field);
    assert_true(cJSON_IsString(value));
    return value->valuestring;
}

static double number_of(const cJSON *object, const char *field) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, field);
    assert_true(cJSON_IsNumber(value));
    return value->valuedouble;
}

/* Element s of a list of texts. */
static void expect_text(const cJSON *object, const char *field, int s, const char *text) {
    const cJSON *value = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(object, field), s);
    assert_true(cJSON_IsString(value));
    assert_string_equal(text, value->valuestring);
}

static void write_order(char text[TEXT], const struct ddp_instruction *list, int count) {
    size_t at = 0;
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, TEXT - at, "%s%c%d", i > 0 ? " " : "", list[i].backward ? 'B' : 'F',
                               list[i].micro_batch);
    assert_true(at < TEXT);
}

/* Slot by slot, for a stage whose instruction i begins at begins[i]. */
static void write_time_line(char text[TEXT], const struct ddp_instruction *list, const double *begins, int count,
                            int slots) {
    size_t at = 0;
    for (int slot = 0, i = 0; slot < slots; slot++) {
        while (i < count && begins[i] + (list[i].backward ? 2 : 1) <= slot) i++;
        if (slot > 0) at += (size_t)snprintf(text + at, TEXT - at, " ");
        if (i < count && begins[i] <= slot)
            at += (size_t)snprintf(text + at, TEXT - at, "%c%d", list[i].backward ? 'B' : 'F', list[i].micro_batch);
        else
            at += (size_t)snprintf(text + at, TEXT - at, ".");
    }
    assert_true(at < TEXT);
}

static void expect_case(const cJSON *golden) {
    char text[TEXT];
    bool gpipe = strcmp(text_of(golden, "schedule"), "gpipe") == 0;
    int stages = (int)golden_integer(golden, "p"), micro_batches = (int)golden_integer(golden, "m");
    const struct lists *lists = lists_of(gpipe ? DDP_GPIPE : DDP_1F1B, stages, micro_batches);
    ddp_simulated simulated = simulate(lists, DDP_ANY_NUMBER);
    int64_t stored[MOST_STAGES], in_flight[MOST_STAGES];
    assert_int_equal(simulated.outcome, DDP_RUNS_THROUGH);
    assert_int_equal((int64_t)simulated.makespan, golden_integer(golden, "makespan"));
    assert_true(simulated.idle_share - number_of(golden, "idle_share") < 1e-12);
    assert_true(number_of(golden, "idle_share") - simulated.idle_share < 1e-12);
    for (int s = 0; s < stages; s++) {
        const struct ddp_instruction *list = &lists->all[s * lists->count];
        write_order(text, list, lists->count);
        expect_text(golden, "order", s, text);
        write_time_line(text, list, simulated.begins + s * lists->count, lists->count, (int)simulated.makespan);
        expect_text(golden, "timeline", s, text);
        stored[s] = simulated.stages[s].stored;
        in_flight[s] = ddp_schedule_in_flight(&lists->schedule, s);
    }
    const cJSON *peaks = cJSON_GetObjectItemCaseSensitive(golden, "peak_stored_stage_microbatch_pairs_per_rank");
    golden_expect_integers(peaks, stored, stages);
    golden_expect_integers(peaks, in_flight, stages);
    ddp_simulated_free(&simulated);
}

TEST(orders_and_time_lines_are_pytorchs) {
    cJSON *golden = golden_json("pipeline_orders.json");
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(golden, "cases"), *each;
    assert_int_equal(cJSON_GetArraySize(cases), 6);
    cJSON_ArrayForEach(each, cases) expect_case(each);
    cJSON_Delete(golden);
}

/* --- any number of stages and of micro-batches -------------------------------------------------------------------- */

static void for_all(void (*check)(const struct lists *)) {
    for (int kind = DDP_GPIPE; kind <= DDP_1F1B; kind++)
        for (int stages = 1; stages <= MOST_STAGES; stages++)
            for (int micro_batches = 1; micro_batches <= MOST; micro_batches++)
                check(lists_of((ddp_schedule_kind)kind, stages, micro_batches));
}

/* No slot is used while it holds another micro-batch's activations, and each backward pass finds its own. */
static void expect_slots(const struct lists *lists) {
    for (int s = 0; s < lists->schedule.stages; s++) {
        int holds[MOST];
        memset(holds, -1, sizeof holds);
        for (int i = 0; i < lists->count; i++) {
            const struct ddp_instruction *x = &lists->all[s * lists->count + i];
            assert_in_range(x->slot, 0, ddp_schedule_in_flight(&lists->schedule, s) - 1);
            assert_int_equal(holds[x->slot], x->backward ? x->micro_batch : -1);
            holds[x->slot] = x->backward ? -1 : x->micro_batch;
        }
    }
}

TEST(in_each_slot_is_one_micro_batch_at_a_time) { for_all(expect_slots); }

static void expect_passes(const struct lists *lists) {
    for (int s = 0; s < lists->schedule.stages; s++) {
        int before = s == 0 ? DDP_NO_STAGE : s - 1, behind = s + 1 == lists->schedule.stages ? DDP_NO_STAGE : s + 1;
        int next[2] = {0, 0}; /* micro-batch of the next forward and of the next backward pass */
        for (int i = 0; i < lists->count; i++) {
            const struct ddp_instruction *x = &lists->all[s * lists->count + i];
            assert_int_equal(x->micro_batch, next[x->backward]++);
            assert_int_equal(x->from, x->backward ? behind : before);
            assert_int_equal(x->to, x->backward ? before : behind);
            assert_int_equal(x->accumulates, x->backward && x->micro_batch > 0);
        }
        assert_int_equal(next[0], lists->schedule.micro_batches);
        assert_int_equal(next[1], lists->schedule.micro_batches);
    }
}

TEST(each_stage_runs_each_pass_once_in_the_order_of_micro_batches) { for_all(expect_passes); }

static void expect_counts(const struct lists *lists) {
    ddp_simulated simulated = simulate(lists, DDP_ANY_NUMBER);
    int m = lists->schedule.micro_batches, p = lists->schedule.stages;
    for (int s = 0; s < p; s++) {
        int expected = lists->schedule.kind == DDP_1F1B && p - s < m ? p - s : m;
        assert_int_equal(simulated.stages[s].stored, expected);
        assert_int_equal(ddp_schedule_in_flight(&lists->schedule, s), expected);
    }
    assert_true(simulated.makespan == 3.0 * (m + p - 1));
    assert_true(ddp_schedule_bubble(&lists->schedule) == (double)(p - 1) / (m + p - 1));
    double difference = simulated.idle_share - ddp_schedule_bubble(&lists->schedule);
    assert_true(difference < 1e-12 && difference > -1e-12);
    ddp_simulated_free(&simulated);
}

TEST(both_kinds_have_the_same_bubble_and_1f1b_has_fewer_in_flight) { for_all(expect_counts); }

static void expect_no_deadlock(const struct lists *lists) {
    for (int holds = 0; holds < 3; holds++) {
        ddp_simulated simulated = simulate(lists, holds);
        assert_int_equal(simulated.outcome, DDP_RUNS_THROUGH);
        assert_true(simulated.makespan == 3.0 * (lists->schedule.micro_batches + lists->schedule.stages - 1));
        ddp_simulated_free(&simulated);
    }
}

TEST(sends_that_block_neither_hang_nor_cost_time) { for_all(expect_no_deadlock); }

/* Otherwise the test for deadlocks would prove nothing. */
TEST(without_exchanges_1f1b_over_blocking_sends_hangs) {
    for (int kind = DDP_GPIPE; kind <= DDP_1F1B; kind++) {
        struct lists *lists = lists_of((ddp_schedule_kind)kind, 4, 8);
        for (int i = 0; i < 4 * lists->count; i++) {
            assert_false(kind == DDP_GPIPE && lists->all[i].exchanges);
            lists->all[i].exchanges = false;
        }
        assert_int_equal(outcome_of(lists, 0), kind == DDP_GPIPE ? DDP_RUNS_THROUGH : DDP_DEADLOCK);
        assert_int_equal(outcome_of(lists, 1), DDP_RUNS_THROUGH);
    }
}

/* The largest numbers of stages and micro-batches that ddp_train accepts. */
TEST(sizes_at_the_limit) {
    ddp_schedule schedule = {DDP_1F1B, DDP_MOST_STAGES, 4096};
    static struct ddp_instruction list[2 * 4096];
    ddp_schedule_list(&schedule, 0, list);
    assert_int_equal(ddp_schedule_in_flight(&schedule, 0), 64);
    assert_true(list[2 * 4096 - 1].backward);
    assert_int_equal(list[2 * 4096 - 1].micro_batch, 4095);
}
