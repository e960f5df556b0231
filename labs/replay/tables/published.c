#include "labs/replay/tables/published.h"

#include <string.h>

#include "common/base/json.h"
#include "labs/replay/engine/library.h"

static const char *const members[] = {"what", "mode", "n", "value", "use", "source", NULL};

static const struct published_figure *find(const published *p, const char *what, const char *mode, int n) {
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (figure->n == n && strcmp(figure->what, what) == 0 && strcmp(figure->mode, mode) == 0) return figure;
    }
    return NULL;
}

static bool is_a_time_of_training(const char *what) { return strstr(what, "step") || strstr(what, "epoch"); }

static void read_figure(published *p, ls_json *json, const cJSON *object) {
    ls_json_only(json, object, members);
    const char *use = ls_json_text(json, object, "use");
    struct published_figure figure = {.what = ls_json_text(json, object, "what"),
                                      .mode = ls_json_text(json, object, "mode"),
                                      .n = (int)ls_json_whole(json, object, "n", 1, 1 << 20),
                                      .value = ls_json_number(json, object, "value", 1e-9, 1e9),
                                      .is_row = strcmp(use, "row") == 0,
                                      .source = ls_json_text(json, object, "source")};
    if (ls_json_failed(json)) return;
    if (!figure.is_row && strcmp(use, "input") != 0) ls_json_refuse(json, object, "\"use\" is \"input\" or \"row\"");
    if (!figure.is_row && figure.n > 1 && is_a_time_of_training(figure.what))
        ls_json_refuse(json, object, "a step of more than one device is never an input");
    if (find(p, figure.what, figure.mode, figure.n))
        ls_json_refuse(json, object, "\"%s\", %s, n %d is there twice", figure.what, figure.mode, figure.n);
    if (p->count == PUBLISHED_MAX) ls_json_refuse(json, object, "more than %d figures", PUBLISHED_MAX);
    if (!ls_json_failed(json)) p->figures[p->count++] = figure;
}

ls_status published_open(published *to, const char *name) {
    char path[LS_LIBRARY_PATH];
    ls_json *json = NULL;
    *to = (published){.count = 0};
    ls_status status = ls_library_find(path, "labs/replay/tables", name);
    if (status == LS_OK) status = ls_json_open(&json, path);
    if (status != LS_OK) return status;
    const cJSON *object, *array = ls_json_array(json, ls_json_root(json), "figures");
    cJSON_ArrayForEach(object, array) read_figure(to, json, object);
    to->storage = json;
    if (!ls_json_failed(json)) return LS_OK;
    published_close(to);
    return LS_ERR_INVALID;
}

void published_close(published *figures) {
    ls_json_close(figures->storage);
    *figures = (published){.count = 0};
}

ls_status published_input(double *value, const published *figures, const char *what, const char *mode, int n) {
    const struct published_figure *figure = find(figures, what, mode, n);
    if (!figure) return ls_fail(LS_ERR_INVALID, "no published figure: %s, %s, n %d", what, mode, n);
    if (figure->is_row)
        return ls_fail(LS_ERR_INVALID, "%s, %s, n %d is a row, and cannot be an input, too", what, mode, n);
    *value = figure->value;
    return LS_OK;
}
