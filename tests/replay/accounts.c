#include "tests/replay/accounts.h"

#include "tests/base/test.h"

struct ls_account *account_of(const struct scene *s) {
    struct ls_account *account;
    assert_int_equal(ls_account_make(&account, s->trace, s->timeline, s->node), LS_OK);
    return account;
}

double account_step_us(ls_trace *trace, const ls_node *node) {
    ls_timeline *timeline;
    struct ls_account *account;
    assert_int_equal(ls_engine_run(&timeline, trace, node), LS_OK);
    assert_int_equal(ls_account_make(&account, trace, timeline, node), LS_OK);
    double us = account->step_us;
    ls_account_free(account);
    ls_timeline_free(timeline);
    ls_trace_destroy(trace);
    return us;
}

void account_expect_split(const struct ls_account *account, int place, double compute_us, double exposed_us,
                          double host_us, double idle_us) {
    const struct ls_device_account *d = &account->devices[place];
    expect_us(d->compute_us, compute_us);
    expect_us(d->exposed_us, exposed_us);
    expect_us(d->host_us, host_us);
    expect_us(d->idle_us, idle_us);
}

void account_add_step(struct scene *s) {
    enum { HOST, HELPER, COMPUTE, COMM, ELSEWHERE };
    s->phase = "forward";
    int launch = scene_host(s, HOST, 2);
    int kernel = scene_after(s, launch, scene_kernel(s, COMPUTE, 10));
    int wake = scene_after(s, launch, scene_host(s, HELPER, 7));
    s->phase = "all-reduce";
    int reduce = scene_after(s, wake, scene_collective(s, COMM, s->step, 1, 6));
    s->phase = "optimizer";
    int more = scene_after(s, kernel, scene_host(s, HOST, 4));
    int last = scene_after(s, more, scene_kernel(s, ELSEWHERE, 3));
    scene_after(s, reduce, last);
    scene_after(s, last, scene_host(s, HOST, 0));
    scene_after(s, last, scene_host(s, HELPER, 0));
    s->step++;
}

void account_begin(struct scene *s, int first_step) {
    scene_begin(s);
    s->step = first_step;
    scene_lane(s, LS_LANE_HOST, 0, 3);
    scene_lane(s, LS_LANE_HOST, 0, LS_NONE); /* a thread that drives no device */
    scene_lane(s, LS_LANE_COMPUTE, 0, 3);
    scene_lane(s, LS_LANE_COMM, 0, 3);
    scene_lane(s, LS_LANE_COMPUTE, 0, 9);
}
