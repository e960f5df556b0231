/* skeleton */
#include "common/base/json.h"

ls_status ls_json_open(ls_json **out, const char *path) {
    (void)out;
    (void)path;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_json_parse(ls_json **out, const char *name, size_t first_line, const char *text, size_t nbytes) {
    (void)out;
    (void)name;
    (void)first_line;
    (void)text;
    (void)nbytes;
    return LS_ERR_UNSUPPORTED;
}
void ls_json_close(ls_json *json) { (void)json; }
const cJSON *ls_json_root(const ls_json *json) {
    (void)json;
    return NULL;
}
bool ls_json_failed(const ls_json *json) {
    (void)json;
    return 0;
}
double ls_json_number(ls_json *json, const cJSON *object, const char *name, double lowest, double highest) {
    (void)json;
    (void)object;
    (void)name;
    (void)lowest;
    (void)highest;
    return 0;
}
int64_t ls_json_whole(ls_json *json, const cJSON *object, const char *name, int64_t lowest, int64_t highest) {
    (void)json;
    (void)object;
    (void)name;
    (void)lowest;
    (void)highest;
    return 0;
}
const char *ls_json_text(ls_json *json, const cJSON *object, const char *name) {
    (void)json;
    (void)object;
    (void)name;
    return NULL;
}
bool ls_json_bool(ls_json *json, const cJSON *object, const char *name) {
    (void)json;
    (void)object;
    (void)name;
    return 0;
}
const cJSON *ls_json_object(ls_json *json, const cJSON *object, const char *name) {
    (void)json;
    (void)object;
    (void)name;
    return NULL;
}
const cJSON *ls_json_array(ls_json *json, const cJSON *object, const char *name) {
    (void)json;
    (void)object;
    (void)name;
    return NULL;
}
bool ls_json_has(const cJSON *object, const char *name) {
    (void)object;
    (void)name;
    return 0;
}
void ls_json_only(ls_json *json, const cJSON *object, const char *const *names) {
    (void)json;
    (void)object;
    (void)names;
}
void ls_json_refuse(ls_json *json, const cJSON *value, const char *format, ...) {
    (void)json;
    (void)value;
    (void)format;
}
