#include "tests/replay/expected_work.h"

#include "tests/base/test.h"

void expect_work(const ls_workload *w, const struct ls_work *expected, int count) {
    assert_int_equal(w->work_count, count);
    for (int i = 0; i < count; i++) {
        const struct ls_work *got = &w->work[i], *wanted = &expected[i];
        assert_string_equal(got->name, wanted->name);
        assert_string_equal(got->phase, wanted->phase);
        bool same = got->flops == wanted->flops && got->bytes == wanted->bytes && got->us == wanted->us &&
                    got->fixed_bytes == wanted->fixed_bytes && got->is_product == wanted->is_product &&
                    got->host_us == wanted->host_us && got->ready_count == wanted->ready_count &&
                    got->channels == wanted->channels;
        if (!same || (got->ready_count > 0 && got->first_ready != wanted->first_ready)) {
            fail_msg("operation %d: %g flops, %g bytes, %g fixed, %g us, host %g us, %d ready", i, got->flops,
                     got->bytes, got->fixed_bytes, got->us, got->host_us, got->ready_count);
        }
    }
}
