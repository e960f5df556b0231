#include <stdio.h>
#include <stdlib.h>

#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

cJSON *golden_json(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s", name);
    size_t nbytes;
    char *text = scratch_read(path, &nbytes);
    cJSON *json = cJSON_Parse(text);
    free(text);
    if (!json) fail_msg("%s is not JSON", path);
    return json;
}

int64_t golden_integer(const cJSON *object, const char *field) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, field);
    if (!cJSON_IsNumber(value)) fail_msg("there is no number '%s'", field);
    return (int64_t)value->valuedouble;
}

void golden_expect_integers(const cJSON *array, const int64_t *values, int64_t count) {
    assert_true(cJSON_IsArray(array));
    assert_int_equal(cJSON_GetArraySize(array), count);
    int64_t i = 0;
    const cJSON *value;
    cJSON_ArrayForEach(value, array) {
        if (!(value->valuedouble == (double)values[i])) {
            fail_msg("element %lld is %lld, not %.0f", (long long)i, (long long)values[i], value->valuedouble);
        }
        i++;
    }
}
