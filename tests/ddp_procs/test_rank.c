/* rank: what the environment means, and which line refuses it. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/rank.h"

static const char *const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR", "MASTER_PORT", "LS_STORE"};
enum { NAME_COUNT = sizeof names / sizeof names[0] };

/* Sets the environment to the values, in the order of the names above; NULL: not set. */
static ls_status discover(const char *const values[NAME_COUNT], ddp_rank *self, char message[512]) {
    for (int i = 0; i < NAME_COUNT; i++) {
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
    }
    memset(self, 0xff, sizeof *self);
    ls_log_capture(message, 512);
    ls_status status = ddp_rank_discover(self);
    ls_log_capture(NULL, 0);
    return status;
}

static void test_alone(void **state) {
    (void)state;
    ddp_rank self;
    char message[512];
    assert_int_equal(discover((const char *const[NAME_COUNT]){0}, &self, message), LS_OK);
    assert_int_equal(self.rank, 0);
    assert_int_equal(self.world_size, 1);
    assert_int_equal(self.local_rank, 0);
    assert_int_equal(self.local_world_size, 1);
    assert_false(self.launched);
    assert_false(self.hosts_store);
}

static void test_launched(void **state) {
    (void)state;
    ddp_rank self;
    char message[512];
    const char *const one[NAME_COUNT] = {"5", "8", "1", "4", "node0", "29500"};
    assert_int_equal(discover(one, &self, message), LS_OK);
    assert_int_equal(self.rank, 5);
    assert_int_equal(self.world_size, 8);
    assert_int_equal(self.local_rank, 1);
    assert_int_equal(self.local_world_size, 4);
    assert_string_equal(self.master_host, "node0");
    assert_int_equal(self.master_port, 29500);
    assert_true(self.launched);
    assert_false(self.hosts_store);
    const char *const zero[NAME_COUNT] = {"0", "2", "0", "2", "127.0.0.1", "1"};
    assert_int_equal(discover(zero, &self, message), LS_OK);
    assert_true(self.hosts_store);
    const char *const client[NAME_COUNT] = {"0", "2", "0", "2", "127.0.0.1", "65535", "launcher"};
    assert_int_equal(discover(client, &self, message), LS_OK);
    assert_true(self.launched);
    assert_false(self.hosts_store);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *values[NAME_COUNT];
        const char *message; /* its beginning */
    } cases[] = {
        {{"0"}, "the environment has RANK but not WORLD_SIZE: start the ranks with ddprun, or set all of RANK"},
        {{"0", "2", "0", "2", "127.0.0.1"}, "the environment has RANK but not MASTER_PORT: "},
        {{"0", "2", NULL, "2", "127.0.0.1", "1"}, "the environment has RANK but not LOCAL_RANK: "},
        {{NULL, "2", "0", "2", "127.0.0.1", "1"}, "the environment has WORLD_SIZE but not RANK: "},
        {{NULL, NULL, NULL, NULL, "127.0.0.1"}, "the environment has MASTER_ADDR but not RANK: "},
        {{"2", "2", "0", "2", "h", "1"}, "the environment's RANK is '2', but must be a number from 0 to 1 (less than"},
        {{"-1", "2", "0", "2", "h", "1"}, "the environment's RANK is '-1', but must be a number from 0 to 1"},
        {{"", "2", "0", "2", "h", "1"}, "the environment's RANK is '', but must be"},
        {{"1x", "2", "0", "2", "h", "1"}, "the environment's RANK is '1x', but must be"},
        {{" 1", "2", "0", "2", "h", "1"}, "the environment's RANK is ' 1', but must be"},
        {{"0", "0", "0", "1", "h", "1"}, "the environment's WORLD_SIZE is '0', but must be a number from 1 to 64"},
        {{"0", "65", "0", "1", "h", "1"}, "the environment's WORLD_SIZE is '65', but must be a number from 1 to 64"},
        {{"0", "4294967297", "0", "1", "h", "1"}, "the environment's WORLD_SIZE is '4294967297', but must be"},
        {{"0", "2", "0", "3", "h", "1"}, "the environment's LOCAL_WORLD_SIZE is '3', but must be a number from 1 to 2"},
        {{"0", "4", "2", "2", "h", "1"}, "the environment's LOCAL_RANK is '2', but must be a number from 0 to 1"},
        {{"0", "2", "0", "2", "h", "0"}, "the environment's MASTER_PORT is '0', but must be a number from 1 to 65535"},
        {{"0", "2", "0", "2", "h", "65536"}, "the environment's MASTER_PORT is '65536', but must be"},
        {{"0", "2", "0", "2", "", "1"}, "the environment's MASTER_ADDR has 0 characters"},
        {{"0", "2", "0", "2", "h", "1", "rank1"}, "the environment's LS_STORE is 'rank1', but must be 'launcher' or"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_rank self;
        static const ddp_rank zero;
        char message[512];
        assert_int_equal(discover(cases[i].values, &self, message), LS_ERR_INVALID);
        message[strlen(message) < strlen(cases[i].message) ? strlen(message) : strlen(cases[i].message)] = '\0';
        assert_string_equal(message, cases[i].message);
        assert_memory_equal(&self, &zero, sizeof zero);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_launched),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("rank", tests, NULL, NULL);
}
