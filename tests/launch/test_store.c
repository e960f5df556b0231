/* store: the semantics of each operation, also between processes, and its error messages. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_table.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/launch/store_fixture.h"

enum { MESSAGE_CAPACITY = 512 };

static void put(ddp_store *store, const char *key, const char *text) {
    assert_int_equal(ddp_store_set(store, key, text, strlen(text)), LS_OK);
}

static void expect(ddp_store *store, const char *key, const char *text) {
    char value[64];
    size_t nbytes = 99;
    assert_int_equal(ddp_store_get(store, key, value, sizeof value, &nbytes), LS_OK);
    assert_int_equal(nbytes, strlen(text));
    assert_memory_equal(value, text, nbytes);
}

TEST_WITH(store_set_up, store_tear_down, test_set_and_get) {
    ddp_store *store = ((store_fixture *)*state)->store;
    put(store, "k", "first");
    expect(store, "k", "first");
    put(store, "k", "second, longer");
    expect(store, "k", "second, longer");
    put(store, "empty", "");
    expect(store, "empty", "");
    const char raw[4] = {0, 1, 0, (char)255};
    char value[4];
    size_t nbytes = 0;
    assert_int_equal(ddp_store_set(store, "raw", raw, sizeof raw), LS_OK);
    assert_int_equal(ddp_store_get(store, "raw", value, sizeof value, &nbytes), LS_OK);
    assert_int_equal(nbytes, 4);
    assert_memory_equal(value, raw, 4);
}

TEST_WITH(store_set_up, store_tear_down, test_add_is_on_decimal_text) {
    ddp_store *store = ((store_fixture *)*state)->store;
    int64_t sum = 0;
    assert_int_equal(ddp_store_add(store, "n", 5, &sum), LS_OK);
    assert_int_equal(sum, 5);
    expect(store, "n", "5");
    assert_int_equal(ddp_store_add(store, "n", -12, &sum), LS_OK);
    assert_int_equal(sum, -7);
    expect(store, "n", "-7");
    put(store, "n", "1");
    assert_int_equal(ddp_store_add(store, "n", 3, &sum), LS_OK);
    assert_int_equal(sum, 4);
    put(store, "n", "9223372036854775806");
    assert_int_equal(ddp_store_add(store, "n", 1, &sum), LS_OK);
    assert_true(sum == INT64_MAX);
}

TEST_WITH(store_set_up, store_tear_down, test_add_refuses_what_is_no_number) {
    store_fixture *f = *state;
    char message[MESSAGE_CAPACITY], expected[MESSAGE_CAPACITY];
    snprintf(expected, sizeof expected,
             "store at localhost:%d: cannot add to key 'n': the value is not a whole number, or the sum is too large",
             f->port);
    const char *const texts[] = {"abc", "", "1 ", " 1", "1x", "9223372036854775807", "99999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t sum = 77;
        put(f->store, "n", texts[i]);
        ls_log_capture(message, sizeof message);
        assert_int_equal(ddp_store_add(f->store, "n", 1, &sum), LS_ERR_INVALID);
        ls_log_capture(NULL, 0);
        assert_string_equal(message, expected);
        assert_int_equal(sum, 77);
        expect(f->store, "n", texts[i]);
    }
}

TEST_WITH(store_set_up, store_tear_down, test_check) {
    ddp_store *store = ((store_fixture *)*state)->store;
    bool exists = true;
    assert_int_equal(ddp_store_check(store, "a", &exists), LS_OK);
    assert_false(exists);
    put(store, "a", "");
    assert_int_equal(ddp_store_check(store, "a", &exists), LS_OK);
    assert_true(exists);
}

/* The other side of the two tests below: announces that it runs, waits for two keys, answers. */
static int wait_and_answer(void *argument) {
    const store_fixture *f = argument;
    ddp_store *store;
    char value[8];
    size_t nbytes;
    if (ddp_store_connect(&store, "127.0.0.1", f->port, 30) != LS_OK) return 1;
    if (ddp_store_set(store, "ready", "", 0) != LS_OK) return 2;
    if (ddp_store_get(store, "one", value, sizeof value, &nbytes) != LS_OK) return 3;
    if (ddp_store_get(store, "two", value, sizeof value, &nbytes) != LS_OK) return 3;
    if (ddp_store_get(store, "three", value, sizeof value, &nbytes) != LS_OK || memcmp(value, "III", 3) != 0) return 4;
    if (ddp_store_set(store, "answer", value, nbytes) != LS_OK) return 5;
    ddp_store_close(store);
    return 0;
}

TEST_WITH(store_set_up, store_tear_down, test_waiting_across_processes) {
    store_fixture *f = *state;
    bool exists = true;
    pid_t child = start_child(wait_and_answer, f);
    expect(f->store, "ready", "");
    put(f->store, "two", "");
    put(f->store, "three", "III");
    usleep(50000);
    assert_int_equal(ddp_store_check(f->store, "answer", &exists), LS_OK);
    assert_false(exists); /* the other side waits for "one" */
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    put(f->store, "one", "");
    expect(f->store, "answer", "III");
    assert_int_equal(finish_child(child), 0);
}

static int add_many(void *argument) {
    const store_fixture *f = argument;
    ddp_store *store;
    int64_t sum;
    if (ddp_store_connect(&store, "127.0.0.1", f->port, 30) != LS_OK) return 1;
    for (int i = 0; i < 200; i++)
        if (ddp_store_add(store, "sum", 1, &sum) != LS_OK) return 2;
    ddp_store_close(store);
    return 0;
}

TEST_WITH(store_set_up, store_tear_down, test_adds_of_several_processes_all_count) {
    store_fixture *f = *state;
    pid_t children[4];
    for (int i = 0; i < 4; i++) children[i] = start_child(add_many, f);
    for (int i = 0; i < 4; i++) assert_int_equal(finish_child(children[i]), 0);
    expect(f->store, "sum", "800");
}

TEST_WITH(store_set_up, store_tear_down, test_a_wait_has_a_deadline) {
    store_fixture *f = *state;
    char message[MESSAGE_CAPACITY], expected[MESSAGE_CAPACITY], value[8];
    size_t nbytes;
    ddp_store *hasty;
    assert_int_equal(ddp_store_connect(&hasty, "127.0.0.1", f->port, 0.5), LS_OK);
    snprintf(expected, sizeof expected,
             "key 'absent' did not arrive within 0.5 s from the store at 127.0.0.1:%d: did the rank that sets it fail?",
             f->port);
    double begin_us = ls_now_us();
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_get(hasty, "absent", value, sizeof value, &nbytes), LS_ERR_TIMEOUT);
    assert_string_equal(message, expected);
    assert_true(ls_now_us() - begin_us >= 0.5e6);
    ls_log_capture(NULL, 0);
    put(f->store, "absent", "now");
    put(f->store, "other", "it");
    ddp_store_close(hasty);
    assert_int_equal(ddp_store_connect(&hasty, "127.0.0.1", f->port, 30), LS_OK);
    expect(hasty, "absent", "now");
    ddp_store_close(hasty);
}

TEST_WITH(store_set_up, store_tear_down, test_a_late_reply_answers_no_other_question) {
    store_fixture *f = *state;
    char message[MESSAGE_CAPACITY], value[8];
    size_t nbytes;
    ddp_store *hasty;
    assert_int_equal(ddp_store_connect(&hasty, "127.0.0.1", f->port, 1), LS_OK);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_get(hasty, "late", value, sizeof value, &nbytes), LS_ERR_TIMEOUT);
    ls_log_capture(NULL, 0);
    put(f->store, "late", "LATE");
    put(f->store, "other", "it");
    expect(hasty, "other", "it");
    ddp_store_close(hasty);
}

TEST_WITH(store_set_up, store_tear_down, test_limits) {
    store_fixture *f = *state;
    char key[DDP_STORE_KEY_MAX + 2], message[MESSAGE_CAPACITY], small[4];
    size_t nbytes = 0;
    memset(key, 'k', sizeof key);
    key[DDP_STORE_KEY_MAX] = '\0';
    put(f->store, key, "long");
    expect(f->store, key, "long");
    key[DDP_STORE_KEY_MAX] = 'k';
    key[DDP_STORE_KEY_MAX + 1] = '\0';
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_set(f->store, key, "", 0), LS_ERR_INVALID);
    assert_non_null(strstr(message, "SET with a key of 1025 bytes; expected 1 to 1024"));
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_set(f->store, "", "", 0), LS_ERR_INVALID);
    assert_non_null(strstr(message, "SET with a key of 0 bytes"));

    unsigned char *big = malloc(DDP_STORE_VALUE_MAX + 1), *copy = malloc(DDP_STORE_VALUE_MAX);
    assert_non_null(big);
    assert_non_null(copy);
    for (size_t i = 0; i <= DDP_STORE_VALUE_MAX; i++) big[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_int_equal(ddp_store_set(f->store, "big", big, DDP_STORE_VALUE_MAX), LS_OK);
    assert_int_equal(ddp_store_get(f->store, "big", copy, DDP_STORE_VALUE_MAX, &nbytes), LS_OK);
    assert_int_equal(nbytes, DDP_STORE_VALUE_MAX);
    assert_memory_equal(big, copy, DDP_STORE_VALUE_MAX);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_set(f->store, "big", big, DDP_STORE_VALUE_MAX + 1), LS_ERR_INVALID);
    assert_non_null(strstr(message, "SET of key 'big' with 65537 bytes; expected at most 65536"));
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_get(f->store, "big", small, sizeof small, &nbytes), LS_ERR_INVALID);
    ls_log_capture(NULL, 0);
    assert_non_null(strstr(message, "key 'big' holds 65536 bytes, more than the expected 4"));
    assert_int_equal(nbytes, DDP_STORE_VALUE_MAX);
    put(f->store, "after", "fine");
    expect(f->store, "after", "fine");
    free(big);
    free(copy);
}

TEST_WITH(store_set_up, store_tear_down, test_a_store_has_so_many_keys) {
    ddp_store_table *table = ddp_store_table_create();
    char key[32];
    int64_t sum = 0;
    assert_non_null(table);
    for (int i = 0; i < DDP_STORE_KEYS_MAX; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(ddp_store_table_set(table, key, (ddp_bytes){"v", 1}), DDP_RESULT_OK);
    }
    assert_int_equal(ddp_store_table_set(table, "one more", (ddp_bytes){"v", 1}), DDP_RESULT_FULL);
    assert_int_equal(ddp_store_table_add(table, "one more", 1, &sum), DDP_RESULT_FULL);
    assert_int_equal(ddp_store_table_set(table, "key 7", (ddp_bytes){"other", 5}), DDP_RESULT_OK);
    ddp_store_table_destroy(table);
}

TEST_WITH(store_set_up, store_tear_down, test_a_store_has_so_many_bytes) {
    enum { MANY = (int)(DDP_STORE_TOTAL_MAX / DDP_STORE_VALUE_MAX) };
    char key[32], message[MESSAGE_CAPACITY];
    void *big = calloc(1, DDP_STORE_VALUE_MAX);
    ddp_store *store = ((store_fixture *)*state)->store;
    assert_non_null(big);
    for (int i = 0; i < MANY - 1; i++) { /* the keys count, too */
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(ddp_store_set(store, key, big, DDP_STORE_VALUE_MAX), LS_OK);
    }
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_set(store, "one more", big, DDP_STORE_VALUE_MAX), LS_ERR_NO_MEMORY);
    ls_log_capture(NULL, 0);
    assert_non_null(
        strstr(message, " is full, key 'one more' has no room: expected at most 4096 keys, and 8388608 bytes"));
    assert_int_equal(ddp_store_set(store, "key 3", big, DDP_STORE_VALUE_MAX), LS_OK); /* replaces its own value */
    put(store, "key 4", "");                                                          /* which frees memory */
    assert_int_equal(ddp_store_set(store, "one more", big, DDP_STORE_VALUE_MAX), LS_OK);
    free(big);
}

TEST_WITH(store_set_up, store_tear_down, test_bootstrap_view) {
    ddp_store *store = ((store_fixture *)*state)->store;
    ls_bootstrap view = ddp_store_bootstrap(store);
    char value[8];
    size_t nbytes = 0;
    assert_int_equal(view.set(view.context, "seg", "fd7", 3), LS_OK);
    assert_int_equal(view.get(view.context, "seg", value, sizeof value, &nbytes), LS_OK);
    assert_int_equal(nbytes, 3);
    expect(store, "seg", "fd7");
}

int main(void) {
    alarm(120);
    return run_added_tests();
}
