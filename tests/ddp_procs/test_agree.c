/* The settings that ranks compare before the first step: the comparison itself, and that no option of a command line is
 * left out. Ranks are threads, each with its own client of one store. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/build_id.h"
#include "common/base/log.h"
#include "ddp_procs/agree.h"
#include "ddp_procs/compared.h"
#include "ddp_procs/settings.h"
#include "tests/base/other_value.h"
#include "tests/base/test.h"

enum { TEXT_CAPACITY = 600 };

/* --- ranks ----------------------------------------------------------------------------------------------------------- */

typedef struct member {
    ddp_agreement agreement;
    int port;
    bool absent, gives_up;
    ddp_facts facts;
    ls_status status;
    char said[TEXT_CAPACITY]; /* the first line of its log */
    pthread_t thread;
} member;

typedef struct job {
    ddp_store_server *server;
    int world_size;
    member ranks[LS_COMM_MAX_RANKS];
} job;

static job *make_job(int world_size, double timeout_s) {
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->world_size = world_size;
    assert_int_equal(ddp_store_serve(&j->server, "127.0.0.1", 0), LS_OK);
    for (int r = 0; r < world_size; r++) {
        j->ranks[r].agreement = (ddp_agreement){NULL, r, world_size, timeout_s, 0, false};
        j->ranks[r].port = ddp_store_server_port(j->server);
        ddp_facts_add(&j->ranks[r].facts, "--model", "mlp");
    }
    return j;
}

static void *live(void *argument) {
    member *r = argument;
    ddp_store *store = NULL;
    const ddp_rank self = {.rank = r->agreement.rank, .world_size = r->agreement.world_size};
    double timeout_s = r->agreement.timeout_s;
    ls_log_capture(r->said, sizeof r->said);
    r->status = ddp_store_connect(&store, "127.0.0.1", r->port, timeout_s);
    if (r->status == LS_OK) r->status = ddp_agree_begin(&r->agreement, store, &self, timeout_s);
    if (r->status == LS_OK && r->gives_up)
        ddp_agree_give_up(&r->agreement, "settings");
    else if (r->status == LS_OK)
        r->status = ddp_agree(&r->agreement, "settings", &r->facts);
    ddp_store_close(store);
    return NULL;
}

static void start_job(job *j) {
    for (int r = 0; r < j->world_size; r++)
        if (!j->ranks[r].absent) assert_int_equal(pthread_create(&j->ranks[r].thread, NULL, live, &j->ranks[r]), 0);
}

static void finish_job(job *j) {
    for (int r = 0; r < j->world_size; r++)
        if (!j->ranks[r].absent) pthread_join(j->ranks[r].thread, NULL);
    ddp_store_server_stop(j->server, 0);
}

static void run_job(job *j) {
    start_job(j);
    finish_job(j);
}

static void expect(const job *j, int r, ls_status status, const char *said) {
    const member *rank = &j->ranks[r];
    if (rank->status != status || strcmp(rank->said, said) != 0)
        fail_msg("rank %d: %s, '%s'", r, ls_status_text(rank->status), rank->said);
}

/* --- the comparison ---------------------------------------------------------------------------------------------------- */

TEST(test_the_same_on_all_ranks) {
    static const int sizes[] = {1, 2, 3, LS_COMM_MAX_RANKS};
    for (int i = 0; i < 4; i++) {
        job *j = make_job(sizes[i], 30);
        run_job(j);
        for (int r = 0; r < j->world_size; r++) expect(j, r, LS_OK, "");
        free(j);
    }
}

TEST(test_who_differs_is_named_with_both_values) {
    job *j = make_job(4, 30);
    for (int r = 0; r < 4; r++) ddp_facts_add(&j->ranks[r].facts, "--lr", r == 1 || r == 3 ? "0.1" : "0.001");
    for (int r = 0; r < 4; r++) ddp_facts_add(&j->ranks[r].facts, "--seed", r == 3 ? "a\033[2J\nb" : "0");
    run_job(j);
    static const char line[] = "--lr: ranks 1, 3 have 0.1, but rank 0 has 0.001; expected the same on all ranks";
    for (int r = 0; r < 4; r++) expect(j, r, LS_ERR_USAGE, line); /* rank 2, which is not the cause, ends too */
    free(j);

    j = make_job(2, 30);
    ddp_facts_add(&j->ranks[0].facts, "--x", "a\033[2J\nb");
    run_job(j);
    for (int r = 0; r < 2; r++)
        expect(j, r, LS_ERR_USAGE, "--x: rank 1 has not known, but rank 0 has a?[2J?b; expected the same on all ranks");
    free(j);
}

/* Values with the same beginning still differ, and a line stays readable. */
TEST(test_long_values) {
    static char value[2][9000];
    job *j = make_job(2, 30);
    for (int r = 0; r < 2; r++) {
        memset(value[r], 'x', sizeof value[r] - 1);
        value[r][sizeof value[r] - 2] = (char)('0' + r);
        ddp_facts_add(&j->ranks[r].facts, "--init", value[r]);
    }
    run_job(j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j->ranks[r].status, LS_ERR_USAGE);
        char *hash = strstr(j->ranks[r].said, "(hash "), *other = hash ? strstr(hash + 1, "(hash ") : NULL;
        assert_non_null(other);
        assert_memory_not_equal(hash, other, 22);
    }
    free(j);
}

/* The number of lines is limited, and each rank that differs is named in one of them. */
TEST(test_many_differences) {
    job *j = make_job(LS_COMM_MAX_RANKS, 30);
    for (int r = 0; r < j->world_size; r++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", r);
        ddp_facts_add(&j->ranks[r].facts, "--seed", seed);
    }
    run_job(j);
    expect(j, 16, LS_ERR_USAGE, "--seed: rank 16 has 16, but rank 0 has 0; expected the same on all ranks");
    for (int r = 17; r < j->world_size; r++) {
        const member *rank = &j->ranks[r];
        assert_int_equal(rank->status, LS_ERR_USAGE);
        if (!strstr(rank->said, "47 more differences between rank 0 and ranks 17-63"))
            fail_msg("rank %d: %s", r, rank->said);
    }
    free(j);
}

TEST(test_a_rank_that_gives_up_ends_the_others_at_once) {
    for (int who = 0; who < 3; who++) {
        job *j = make_job(3, 50); /* longer than the test's own deadline */
        j->ranks[who].gives_up = true;
        run_job(j);
        char said[80];
        snprintf(said, sizeof said, "rank %d%s failed before the first step; see its error", who, who ? " of 3" : "");
        for (int r = 0; r < 3; r++) expect(j, r, r == who ? LS_OK : LS_ERR_PEER, r == who ? "" : said);
        free(j);
    }
}

TEST(test_ranks_that_do_not_come_are_named) {
    job *jobs[3];
    for (int who = 0; who < 3; who++) { /* all wait at the same time */
        jobs[who] = make_job(3, 2);
        jobs[who]->ranks[who].absent = true;
        start_job(jobs[who]);
    }
    for (int who = 0; who < 3; who++) {
        char wanted[40];
        snprintf(wanted, sizeof wanted, "rank %d of 3 did not arrive within 2 s", who);
        finish_job(jobs[who]);
        for (int r = 0; r < 3; r++) {
            const member *rank = &jobs[who]->ranks[r];
            if (r == who) continue;
            if (ls_status_exit_code(rank->status) != 3 || strncmp(rank->said, wanted, strlen(wanted)) != 0)
                fail_msg("without rank %d, rank %d: %s", who, r, rank->said);
        }
        free(jobs[who]);
    }
}

/* A launcher's script may start two programs in turn: rank 0 of the second, which is early, does not read the settings
 * of rank 1 of the first. */
TEST(test_a_second_run_over_the_same_store) {
    job *j = make_job(2, 30);
    for (int run = 1; run <= 3; run++) {
        char seed[8];
        snprintf(seed, sizeof seed, "%d", run);
        for (int r = 0; r < 2; r++) ddp_facts_add(&j->ranks[r].facts, "--seed", seed);
        assert_int_equal(pthread_create(&j->ranks[0].thread, NULL, live, &j->ranks[0]), 0);
        usleep(20000);
        live(&j->ranks[1]);
        ls_log_capture(NULL, 0);
        pthread_join(j->ranks[0].thread, NULL);
        for (int r = 0; r < 2; r++) expect(j, r, LS_OK, "");
        for (int r = 0; r < 2; r++) j->ranks[r].facts = (ddp_facts){0};
    }
    ddp_store_server_stop(j->server, 0);
    free(j);
}

/* Bytes that another program has stored there are not read beyond their end. */
TEST(test_what_is_no_facts) {
    static const char *const bytes[] = {"--model", "--model\0", "\0\0\0", "x\0y\0--model\0ml"};
    static const size_t nbytes[] = {7, 8, 3, 14};
    for (int i = 0; i < 4; i++) {
        job *j = make_job(2, 30);
        memcpy(j->ranks[1].facts.bytes, bytes[i], nbytes[i]);
        j->ranks[1].facts.nbytes = nbytes[i];
        run_job(j);
        for (int r = 0; r < 2; r++)
            expect(j, r, LS_ERR_USAGE,
                   "--model: rank 1 has not known, but rank 0 has mlp; expected the same on all ranks");
        free(j);
    }
}

TEST(test_too_much_to_say) {
    static char value[500];
    memset(value, 'x', sizeof value - 1);
    job *j = make_job(1, 30);
    for (int i = 0; i < 200; i++) ddp_facts_add(&j->ranks[0].facts, "--model", value);
    run_job(j);
    expect(j, 0, LS_ERR_INVALID, "the settings of rank 0 cannot be compared: there are too many");
    free(j);
}

/* --- compared settings -------------------------------------------------------------------------------------------- */

typedef struct party {
    ddp_rank self;
    int port;
    ls_option rows[DDP_OPTION_ROWS];
    ddp_settings settings;
    size_t count;
    ls_status status;
    char said[TEXT_CAPACITY];
} party;

static void *compare_settings(void *argument) {
    party *p = argument;
    ddp_store *store = NULL;
    ddp_agreement agreement;
    ls_log_capture(p->said, sizeof p->said);
    p->status = ddp_store_connect(&store, "127.0.0.1", p->port, 30);
    if (p->status == LS_OK) p->status = ddp_agree_begin(&agreement, store, &p->self, 30);
    if (p->status == LS_OK) p->status = ddp_agree_on_settings(&agreement, p->rows, p->count);
    ddp_store_close(store);
    return NULL;
}

static void compare_with(size_t changed, party parties[2]) {
    ddp_store_server *server;
    pthread_t thread;
    assert_int_equal(ddp_store_serve(&server, "127.0.0.1", 0), LS_OK);
    for (int r = 0; r < 2; r++) {
        party *p = &parties[r];
        *p = (party){.self = {.rank = r, .world_size = 2}, .port = ddp_store_server_port(server)};
        p->settings = ddp_settings_defaults();
        p->count = ddp_option_rows(&p->settings, p->rows);
    }
    if (changed < parties[1].count) give_other_value(&parties[1].rows[changed]);
    assert_int_equal(pthread_create(&thread, NULL, compare_settings, &parties[1]), 0);
    ls_log_sink before = ls_log_capture(NULL, 0);
    compare_settings(&parties[0]);
    ls_log_restore(before);
    pthread_join(thread, NULL);
    ddp_store_server_stop(server, 0);
}

/* The message of ranks 0 and 1 if only rank 1 has another value in this row; "" for none. */
static void text_of_difference(const ls_option *row, char *text, size_t capacity) {
    static const char *const formats[] = {
        [LS_SAME_VALUE] = "--%s: rank 1 has ",
        [LS_ALL_OR_NONE] = "--%s: rank 1 has one, but rank 0 has none; expected the same on all ranks",
        [LS_MAY_DIFFER] = "%.0s",
    };
    snprintf(text, capacity, formats[row->agreement], row->name);
}

/* The whole table, row by row. A row without an agreement is compared, by default. */
TEST(test_each_option_is_compared_as_its_row_says) {
    static party parties[2];
    int compared = 0;
    compare_with(SIZE_MAX, parties);
    for (int r = 0; r < 2; r++) assert_int_equal(parties[r].status, LS_OK);
    for (size_t i = 0; i < parties[0].count; i++) {
        const ls_option *row = &parties[0].rows[i];
        if (row->kind == LS_OPTION_HEADING) continue;
        compare_with(i, parties);
        char text[120];
        text_of_difference(row, text, sizeof text);
        bool whole = row->agreement != LS_SAME_VALUE; /* otherwise the values follow */
        for (int r = 0; r < 2; r++)
            if (parties[r].status != (text[0] ? LS_ERR_USAGE : LS_OK) ||
                strncmp(parties[r].said, text, whole ? sizeof text : strlen(text)) != 0)
                fail_msg("--%s: rank %d said '%s'", row->name, r, parties[r].said);
        compared += row->agreement == LS_SAME_VALUE;
    }
    assert_true(compared > 40);
}

static bool is_among(const char *name, const char *const *names) {
    while (*names && strcmp(name, *names) != 0) names++;
    return *names != NULL;
}

/* Machines may keep files in different folders, so an option that names a file must not leave the agreement to the
 * default. All ranks write into the folder of --trace. */
TEST(test_rows_of_files_say_what_ranks_agree_on) {
    static const char *const by_all[] = {"init", "save", "resume", "resume-if-present", "flight", NULL};
    ddp_settings settings = ddp_settings_defaults();
    ls_option rows[DDP_OPTION_ROWS];
    size_t count = ddp_option_rows(&settings, rows);
    for (size_t i = 0; i < count; i++) {
        const char *name = rows[i].name, *argument = rows[i].argument;
        if (rows[i].kind == LS_OPTION_HEADING) continue;
        assert_int_equal(rows[i].agreement == LS_ALL_OR_NONE, is_among(name, by_all));
        bool is_path = argument && (strstr(argument, "FILE") || strstr(argument, "DIR"));
        if (is_path && rows[i].agreement == LS_SAME_VALUE && strcmp(name, "trace") != 0)
            fail_msg("--%s: its row says nothing of agreement", name);
    }
}

TEST(test_build_ids) {
    char own[LS_BUILD_ID_CAPACITY], other[LS_BUILD_ID_CAPACITY];
    ls_build_id(own, NULL);
    assert_int_equal(strspn(own, "0123456789abcdef"), strlen(own));
    assert_true(strlen(own) >= 16);
    assert_string_equal(ls_build_id(other, "libnothing.so"), "not loaded");
    assert_string_not_equal(ls_build_id(other, "libc.so.6"), own);
    assert_string_not_equal(other, "not loaded");
}

int main(void) {
    alarm(40);
    return run_added_tests();
}
