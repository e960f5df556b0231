/* json — reads hand-written JSON, and reports errors with file and line.
 *   idea  : cJSON makes the tree. It accepts deep nesting, control characters, zero bytes and duplicate members; checks
 *           before and after it refuse them. It keeps no line numbers. So when a value is refused, the text, which is
 *           then known to be valid, is scanned past as many values as precede this one in the tree
 *   cost  : two passes over the text, n log n in the members of an object; a refusal costs one pass more
 *   fails : only the first error is reported; later calls return values with which the reader can continue */
#include "common/base/json.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"

#define LS_JSON_MAX_BYTES ((size_t)64 << 20)
#define LS_JSON_MAX_VALUES ((size_t)4 << 20) /* cJSON needs 64 bytes for each */
#define LS_JSON_MAX_DEPTH 64
#define LS_JSON_MAX_WHOLE 9007199254740991.0 /* 2^53 - 1: a double holds each whole number up to it */
#define LS_JSON_FEW_MEMBERS 16
#define LS_REASON_CAPACITY 400

struct ls_json {
    char *name, *text; /* text: zero-terminated, without byte order mark */
    size_t first_line, nbytes;
    cJSON *root;
    bool failed;
};

/* --- lines ------------------------------------------------------------------------------------------------------- */

static size_t line_at(const ls_json *json, const char *place) {
    size_t line = json->first_line;
    for (const char *at = json->text; at < place; at++) line += *at == '\n';
    return line;
}

/* Returns the position after the string that begins at `at`. */
static const char *skip_string(const char *at) {
    for (at++; *at != '"'; at++) at += *at == '\\';
    return at + 1;
}

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/* The position of the value that `before` others precede, in valid text: every string is a value, except those that a
 * colon follows. */
static const char *find_value(const char *text, size_t before) {
    const char *at = text;
    for (;;) {
        at += strspn(at, " \t\r\n,:]}");
        const char *value = at;
        if (*at == '\0') return text; /* not reached: there are as many values in the text as in the tree */
        if (*at == '"') {
            at = skip_string(at);
            if (*skip_space(at) == ':') continue;
        } else if (*at == '{' || *at == '[') {
            at++;
        } else {
            at += strcspn(at, " \t\r\n,:]}");
        }
        if (before-- == 0) return value;
    }
}

/* Counts the values from `item` on, in the order of the text, until `value` is found. */
static bool count_before(const cJSON *item, const cJSON *value, size_t *before) {
    for (; item; item = item->next) {
        if (item == value) return true;
        (*before)++;
        if (count_before(item->child, value, before)) return true;
    }
    return false;
}

void ls_json_refuse(ls_json *json, const cJSON *value, const char *format, ...) {
    char reason[LS_REASON_CAPACITY];
    size_t before = 0;
    if (json->failed) return;
    json->failed = true;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (!count_before(json->root, value, &before)) before = 0; /* NULL, or no value of this file: its first line */
    ls_report_error("%s:%zu: %s", json->name, line_at(json, find_value(json->text, before)), reason);
}

/* --- checks before and after cJSON -------------------------------------------------------------------------------- */

/* Checks a character in a string, and advances `at` past an escape; returns the error, or NULL. */
static const char *check_in_string(const char **at) {
    if ((unsigned char)**at < ' ') return "a control character in a string";
    if (**at == '\\') {
        if (strncmp(*at + 1, "u0000", 5) == 0) return "a zero character in a string";
        (*at)++;
        if ((unsigned char)**at < ' ') return "a string that does not end";
    }
    return NULL;
}

/* Refuses text that would cost cJSON much stack or memory, and errors that it overlooks. */
static ls_status check_text(const ls_json *json) {
    const char *wrong = NULL, *at = json->text, *end = json->text + json->nbytes;
    size_t values = 1;
    int depth = 0;
    bool in_string = false;
    for (; at < end && !wrong; at++) {
        if (*at == '"') {
            in_string = !in_string;
        } else if (in_string) {
            wrong = check_in_string(&at);
        } else {
            depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
            values += *at == '[' || *at == '{' || *at == ',';
            if (depth > LS_JSON_MAX_DEPTH) wrong = "too deeply nested";
            if (values > LS_JSON_MAX_VALUES) wrong = "too many values";
            if ((unsigned char)*at < ' ' && !strchr("\t\r\n", *at)) wrong = "a control character";
            if (*at == '\0') wrong = "a zero byte";
        }
    }
    if (!wrong) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s:%zu: %s", json->name, line_at(json, at - 1), wrong);
}

static int compare_names(const void *left, const void *right) {
    return strcmp((*(const cJSON *const *)left)->string, (*(const cJSON *const *)right)->string);
}

/* A member whose name occurs twice, or NULL. */
static const cJSON *find_twin(const cJSON **members, size_t count) {
    qsort(members, count, sizeof *members, compare_names);
    for (size_t i = 1; i < count; i++)
        if (compare_names(&members[i - 1], &members[i]) == 0) return members[i];
    return NULL;
}

static ls_status check_object(ls_json *json, const cJSON *object) {
    const cJSON *few[LS_JSON_FEW_MEMBERS], **members = few, *member;
    size_t count = 0, i = 0;
    cJSON_ArrayForEach(member, object) count++;
    if (count > LS_JSON_FEW_MEMBERS) members = malloc(count * sizeof(const cJSON *));
    if (!members) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", json->name);
    cJSON_ArrayForEach(member, object) members[i++] = member;
    const cJSON *twin = find_twin(members, count);
    if (members != few) free(members);
    if (!twin) return LS_OK;
    ls_json_refuse(json, twin, "%.80s occurs twice", twin->string);
    return LS_ERR_INVALID;
}

/* The depth is known to be small. */
static ls_status check_tree(ls_json *json, const cJSON *item) {
    ls_status status = LS_OK;
    if (cJSON_IsObject(item)) status = check_object(json, item);
    const cJSON *child;
    cJSON_ArrayForEach(child, item) {
        if (status == LS_OK && child->child) status = check_tree(json, child);
    }
    return status;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static ls_status parse_tree(ls_json *json) {
    const char *stopped = NULL;
    ls_status status = check_text(json);
    if (status != LS_OK) return status;
    json->root = cJSON_ParseWithLengthOpts(json->text, json->nbytes + 1, &stopped, 1);
    if (!json->root) {
        if (*skip_space(json->text) == '\0') return ls_fail(LS_ERR_INVALID, "%s is empty; expected JSON", json->name);
        int shown = (int)strnlen(stopped, 20), rest_of_line = (int)strcspn(stopped, "\r\n");
        if (rest_of_line < shown) shown = rest_of_line;
        return ls_fail(LS_ERR_INVALID, "%s:%zu: cannot parse JSON from \"%.*s\" on", json->name, line_at(json, stopped),
                       shown > 0 ? shown : 7, shown > 0 ? stopped : "the end");
    }
    if (!cJSON_IsObject(json->root)) {
        ls_json_refuse(json, json->root, "expected an object, { ... }");
        return LS_ERR_INVALID;
    }
    return check_tree(json, json->root);
}

/* Takes ownership of `text`, which malloc has allocated, with a zero byte after its nbytes. */
static ls_status make(ls_json **out, const char *name, size_t first_line, char *text, size_t nbytes) {
    ls_json *json = calloc(1, sizeof *json);
    char *copy = malloc(strlen(name) + 1);
    *out = NULL;
    if (!json || !copy) {
        free(json);
        free(copy);
        free(text);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", name);
    }
    memcpy(copy, name, strlen(name) + 1);
    *json = (ls_json){.name = copy, .text = text, .first_line = first_line, .nbytes = nbytes};
    if (nbytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        json->nbytes -= 3;
        memmove(text, text + 3, json->nbytes + 1);
    }
    ls_status status = parse_tree(json);
    if (status == LS_OK) {
        *out = json;
    } else {
        ls_json_close(json);
    }
    return status;
}

ls_status ls_json_parse(ls_json **out, const char *name, size_t first_line, const char *text, size_t nbytes) {
    *out = NULL;
    if (nbytes > LS_JSON_MAX_BYTES)
        return ls_fail(LS_ERR_INVALID, "%s:%zu: the text is larger than %zu bytes", name, first_line,
                       LS_JSON_MAX_BYTES);
    char *copy = malloc(nbytes + 1);
    if (!copy) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", name);
    if (nbytes > 0) memcpy(copy, text, nbytes);
    copy[nbytes] = '\0';
    return make(out, name, first_line, copy, nbytes);
}

ls_status ls_json_open(ls_json **out, const char *path) {
    char *text;
    size_t nbytes;
    *out = NULL;
    ls_status status = ls_file_read(path, LS_JSON_MAX_BYTES, &text, &nbytes);
    return status == LS_OK ? make(out, path, 1, text, nbytes) : status;
}

void ls_json_close(ls_json *json) {
    if (!json) return;
    cJSON_Delete(json->root);
    free(json->name);
    free(json->text);
    free(json);
}

const cJSON *ls_json_root(const ls_json *json) { return json->root; }
bool ls_json_failed(const ls_json *json) { return json->failed; }

/* --- members ------------------------------------------------------------------------------------------------------ */

static bool check_is_object(ls_json *json, const cJSON *object) {
    if (!object) return false;
    if (cJSON_IsObject(object)) return true;
    ls_json_refuse(json, object, "expected an object, { ... }");
    return false;
}

static const cJSON *find_member(ls_json *json, const cJSON *object, const char *name) {
    if (!check_is_object(json, object)) return NULL;
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!member) ls_json_refuse(json, object, "%s is missing", name);
    return member;
}

double ls_json_number(ls_json *json, const cJSON *object, const char *name, double lowest, double highest) {
    const cJSON *member = find_member(json, object, name);
    if (!member) return 0;
    if (!cJSON_IsNumber(member)) {
        ls_json_refuse(json, member, "%s must be a number", name);
    } else if (!isfinite(member->valuedouble) || !(member->valuedouble >= lowest && member->valuedouble <= highest)) {
        ls_json_refuse(json, member, "%s must lie between %.15g and %.15g; found %.15g", name, lowest, highest,
                       member->valuedouble);
    } else {
        return member->valuedouble;
    }
    return 0;
}

int64_t ls_json_whole(ls_json *json, const cJSON *object, const char *name, int64_t lowest, int64_t highest) {
    double value = ls_json_number(json, object, name, -DBL_MAX, DBL_MAX);
    if (json->failed || !object) return 0;
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, name);
    if (value != trunc(value)) {
        ls_json_refuse(json, member, "%s must be a whole number; found %.15g", name, value);
    } else if (!(fabs(value) <= LS_JSON_MAX_WHOLE) || (int64_t)value < lowest || (int64_t)value > highest) {
        ls_json_refuse(json, member, "%s must lie between %lld and %lld; found %.15g", name, (long long)lowest,
                       (long long)highest, value);
    } else {
        return (int64_t)value;
    }
    return 0;
}

const char *ls_json_text(ls_json *json, const cJSON *object, const char *name) {
    const cJSON *member = find_member(json, object, name);
    if (member && cJSON_IsString(member)) return member->valuestring;
    if (member) ls_json_refuse(json, member, "%s must be a string", name);
    return "";
}

bool ls_json_bool(ls_json *json, const cJSON *object, const char *name) {
    const cJSON *member = find_member(json, object, name);
    if (member && !cJSON_IsBool(member)) ls_json_refuse(json, member, "%s must be true or false", name);
    return member && cJSON_IsTrue(member);
}

const cJSON *ls_json_object(ls_json *json, const cJSON *object, const char *name) {
    const cJSON *member = find_member(json, object, name);
    if (!member || cJSON_IsObject(member)) return member;
    ls_json_refuse(json, member, "%s must be an object, { ... }", name);
    return NULL;
}

const cJSON *ls_json_array(ls_json *json, const cJSON *object, const char *name) {
    const cJSON *member = find_member(json, object, name);
    if (!member || cJSON_IsArray(member)) return member;
    ls_json_refuse(json, member, "%s must be an array, [ ... ]", name);
    return NULL;
}

bool ls_json_has(const cJSON *object, const char *name) {
    return cJSON_IsObject(object) && cJSON_GetObjectItemCaseSensitive(object, name);
}

void ls_json_only(ls_json *json, const cJSON *object, const char *const *names) {
    if (!check_is_object(json, object)) return;
    const cJSON *member;
    cJSON_ArrayForEach(member, object) {
        const char *const *name = names;
        while (*name && strcmp(*name, member->string) != 0) name++;
        if (!*name) ls_json_refuse(json, member, "%.80s is not a known key", member->string);
    }
}
