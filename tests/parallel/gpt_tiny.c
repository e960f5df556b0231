#include "tests/parallel/gpt_tiny.h"

#include <cjson/cJSON.h>

#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

/* The tokens are followed by a test set, a tenth of the whole. */
const char *gpt_tiny_text(void) {
    char text[2048];
    cJSON *json = golden_json("gpt_tiny.json");
    const cJSON *token;
    size_t count = 0, trained;
    cJSON_ArrayForEach(token, cJSON_GetObjectItem(json, "tokens")) text[count++] = (char)('A' + token->valueint);
    for (trained = count; count - count / 10 < trained || count == trained; count++) text[count] = 'A';
    assert_int_equal(count - count / 10, trained);
    cJSON_Delete(json);
    scratch_write("tokens", text, count);
    return scratch_path("tokens");
}

struct plan gpt_tiny_plan(const char *text) {
    struct plan plan = {.mode = MODE_SINGLE,
                        .devices = 1,
                        .model = "gpt:2,2,32,16,27",
                        .text = text,
                        .batch = 8,
                        .seed = 3,
                        .allreduce = "direct"};
    plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
    plan.optimizer.learning_rate = 3e-3;
    return plan;
}

void gpt_tiny_losses(const char *run, double losses[GPT_TINY_STEPS]) {
    cJSON *json = golden_json("gpt_tiny.json");
    const cJSON *loss, *stored = cJSON_GetObjectItem(cJSON_GetObjectItem(json, run), "losses");
    assert_int_equal(cJSON_GetArraySize(stored), GPT_TINY_STEPS);
    cJSON_ArrayForEach(loss, stored) *losses++ = loss->valuedouble;
    cJSON_Delete(json);
}
