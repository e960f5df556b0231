/* json: which texts are read, and that all others are refused with their line number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/base/log.h"
#include "tests/base/test.h"

#define LARGEST 9007199254740991

static char message[512];

/* Parses as the file "f.json" from its line 1, and captures the first error. */
static ls_json *parse(const char *text) {
    ls_json *json = NULL;
    message[0] = '\0';
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    ls_status status = ls_json_parse(&json, "f.json", 1, text, strlen(text));
    ls_log_restore(sink);
    assert_true((status == LS_OK) == (json != NULL));
    if (!json) assert_int_equal(status, LS_ERR_INVALID);
    return json;
}

static void assert_refused(const char *text, const char *expected) {
    ls_json *json = parse(text);
    if (json) print_error("read: %s\n", text);
    assert_null(json);
    if (!strstr(message, expected)) print_error("%s\nrather than\n%s\n", message, expected);
    assert_non_null(strstr(message, expected));
}

/* --- values ------------------------------------------------------------------------------------------------------- */

TEST(test_members_are_read) {
    ls_json *json =
        parse("{\"number\": -2.5e3, \"whole\": 9007199254740991, \"text\": \"a \\\"b\\\" \\u00e9\", \"yes\": true,\n"
              " \"no\": false, \"object\": {\"in\": 1}, \"array\": [1, [2], {\"three\": 3}], \"null\": null}");
    assert_non_null(json);
    const cJSON *root = ls_json_root(json);
    assert_true(ls_json_number(json, root, "number", -1e4, 0) == -2500);
    assert_true(ls_json_whole(json, root, "whole", 0, INT64_MAX) == LARGEST);
    assert_string_equal(ls_json_text(json, root, "text"), "a \"b\" \xc3\xa9");
    assert_true(ls_json_bool(json, root, "yes"));
    assert_false(ls_json_bool(json, root, "no"));
    assert_true(ls_json_number(json, ls_json_object(json, root, "object"), "in", 1, 1) == 1);
    assert_int_equal(cJSON_GetArraySize(ls_json_array(json, root, "array")), 3);
    assert_true(ls_json_has(root, "null"));
    assert_false(ls_json_has(root, "Number"));
    assert_false(ls_json_has(NULL, "number"));
    assert_false(ls_json_failed(json));
    ls_json_close(json);
    ls_json_close(NULL);
}

/* Infinity, and integers that doubles cannot distinguish from their neighbours, whatever the limits. */
TEST(test_limits_of_doubles) {
    static const char *const texts[] = {"{\"a\": 9007199254740992}", "{\"a\": -9007199254740993}", "{\"a\": 1e999}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ls_json *json = parse(texts[i]);
        ls_log_sink sink = ls_log_capture(message, sizeof message);
        assert_int_equal(ls_json_whole(json, ls_json_root(json), "a", INT64_MIN, INT64_MAX), 0);
        ls_log_restore(sink);
        assert_non_null(strstr(message, "f.json:1: a must lie between"));
        ls_json_close(json);
    }
    ls_json *json = parse(texts[2]);
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    assert_true(ls_json_number(json, ls_json_root(json), "a", -INFINITY, INFINITY) == 0);
    ls_log_restore(sink);
    assert_true(ls_json_failed(json));
    ls_json_close(json);
}

/* A reader of one member, and its expected result. */
enum reader { NUMBER, WHOLE, TEXT, BOOL, OBJECT, ARRAY };

static void read_member(ls_json *json, enum reader reader, const char *name) {
    const cJSON *root = ls_json_root(json);
    switch (reader) {
    case NUMBER: assert_true(ls_json_number(json, root, name, 1, 10) == 0); break;
    case WHOLE: assert_true(ls_json_whole(json, root, name, 1, 10) == 0); break;
    case TEXT: assert_string_equal(ls_json_text(json, root, name), ""); break;
    case BOOL: assert_false(ls_json_bool(json, root, name)); break;
    case OBJECT: assert_null(ls_json_object(json, root, name)); break;
    case ARRAY: assert_null(ls_json_array(json, root, name)); break;
    }
}

TEST(test_wrong_members_are_refused_with_their_line) {
    static const char text[] = "{\n"                                              /* 1 */
                               "\"text\": \"has : , { [ \\\" \\\\\", \"n\": 0,\n" /* 2 */
                               "\"high\": 10.5, \"half\": 2.5,\n"                 /* 3 */
                               "\"object\": {\"a\": {\"b\": [\n"                  /* 4 */
                               "1, \"x\", null]}},\n"                             /* 5 */
                               "\"array\": [\n\n],\n"                             /* 6 */
                               "\"huge\": 1e300, \"infinite\": 1e999,\n"          /* 9 */
                               "\"beyond\": 9007199254740993\n}";                 /* 10 */
    static const struct {
        enum reader reader;
        const char *name, *expected;
    } cases[] = {
        {NUMBER, "absent", "f.json:1: absent is missing"},
        {NUMBER, "n", "f.json:2: n must lie between 1 and 10; found 0"},
        {NUMBER, "high", "f.json:3: high must lie between 1 and 10; found 10.5"},
        {NUMBER, "text", "f.json:2: text must be a number"},
        {NUMBER, "infinite", "f.json:9: infinite must lie between"},
        {NUMBER, "huge", "f.json:9: huge must lie between 1 and 10; found 1e+300"},
        {WHOLE, "half", "f.json:3: half must be a whole number; found 2.5"},
        {WHOLE, "n", "f.json:2: n must lie between 1 and 10; found 0"},
        {WHOLE, "huge", "f.json:9: huge must lie between 1 and 10; found 1e+300"},
        {WHOLE, "infinite", "f.json:9: infinite must lie between"},
        {WHOLE, "beyond", "f.json:10: beyond must lie between"},
        {TEXT, "n", "f.json:2: n must be a string"},
        {BOOL, "n", "f.json:2: n must be true or false"},
        {OBJECT, "array", "f.json:6: array must be an object"},
        {ARRAY, "object", "f.json:4: object must be an array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_json *json = parse(text);
        assert_non_null(json);
        ls_log_sink sink = ls_log_capture(message, sizeof message);
        read_member(json, cases[i].reader, cases[i].name);
        ls_log_restore(sink);
        assert_true(ls_json_failed(json));
        if (!strstr(message, cases[i].expected)) print_error("%s\nrather than\n%s\n", message, cases[i].expected);
        assert_non_null(strstr(message, cases[i].expected));
        ls_json_close(json);
    }
}

TEST(test_only_the_first_is_reported_and_null_goes_on) {
    ls_json *json = parse("{\n\"a\": 1}");
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    assert_null(ls_json_object(json, ls_json_root(json), "gone"));
    assert_true(ls_json_number(json, NULL, "deeper", 0, 1) == 0);
    assert_string_equal(ls_json_text(json, NULL, "deeper"), "");
    assert_null(ls_json_array(json, NULL, "deeper"));
    ls_json_only(json, NULL, (const char *const[]){NULL});
    assert_non_null(strstr(message, "f.json:1: gone is missing"));
    message[0] = '\0';
    ls_json_only(json, ls_json_root(json), (const char *const[]){NULL});
    assert_string_equal(message, "");
    ls_log_restore(sink);
    ls_json_close(json);
}

TEST(test_unknown_members_are_refused) {
    static const char *const names[] = {"a", "b", NULL};
    ls_json *json = parse("{\n\"a\": [1,\n2],\n\"aa\": 3}");
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    ls_json_only(json, ls_json_root(json), names);
    assert_true(ls_json_failed(json));
    assert_non_null(strstr(message, "f.json:4: aa is not a known key"));
    ls_json_close(json);
    json = parse("{\"b\": [1,\n2],\n\"a\": 3}");
    ls_json_only(json, ls_json_root(json), names);
    assert_false(ls_json_failed(json));
    ls_json_number(json, cJSON_GetArrayItem(ls_json_array(json, ls_json_root(json), "b"), 1), "x", 0, 1);
    ls_log_restore(sink);
    assert_non_null(strstr(message, "f.json:2: expected an object, { ... }"));
    ls_json_close(json);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

TEST(test_what_is_no_json_is_refused_with_its_line) {
    assert_refused("", "f.json is empty; expected JSON");
    assert_refused(" \n ", "f.json is empty; expected JSON");
    assert_refused("[1]", "f.json:1: expected an object, { ... }");
    assert_refused("\n\n7", "f.json:3: expected an object, { ... }");
    assert_refused("{\n\"a\": 1,\n}", "f.json:3: cannot parse JSON");
    assert_refused("{\n\"a\" 1}", "f.json:2: cannot parse JSON");
    assert_refused("{\n\n\"a\": nan}", "f.json:3: cannot parse JSON");
    assert_refused("{\"a\": 1}\n{}", "f.json:2: cannot parse JSON");
    assert_refused("{\"a\":\n\"b", "f.json:2: cannot parse JSON");
    assert_refused("{\"a\":\n[1, 2}", "f.json:2: cannot parse JSON");
    assert_refused("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}", "f.json:3: a occurs twice");
    assert_refused("{\"x\": [{},\n{\"y\": {\"a\": 1,\n\"a\": 1}}]}", "f.json:3: a occurs twice");
    assert_refused("{\"a\": \"x\ny\"}", "f.json:1: a control character in a string");
    assert_refused("{\n\"a\": \"x\\u0000y\"}", "f.json:2: a zero character in a string");
    assert_refused("{\n\"a\": \x01 1}", "f.json:2: a control character");
}

TEST(test_zero_bytes_are_refused) {
    ls_json *json;
    message[0] = '\0';
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    assert_int_equal(ls_json_parse(&json, "f.json", 7, "{\n}\0{}", 6), LS_ERR_INVALID);
    ls_log_restore(sink);
    assert_non_null(strstr(message, "f.json:8: a zero byte"));
}

TEST(test_many_members_may_not_repeat_either) {
    char text[4096] = "{";
    for (int i = 0; i < 100; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "\"m%d\": %d,\n", i, i);
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "\"last\": 0}");
    ls_json *json = parse(text);
    assert_non_null(json);
    assert_true(ls_json_number(json, ls_json_root(json), "m99", 0, 99) == 99);
    ls_json_close(json);
    snprintf(text + length, sizeof text - length, "\"m37\": 0}");
    assert_refused(text, ": m37 occurs twice");
}

/* The root is the first level. */
TEST(test_depth_is_bounded) {
    for (int depth = 63; depth <= 64; depth++) {
        char text[400] = "{\"a\":\n";
        for (int i = 0; i < depth; i++) strcat(text, "[");
        for (int i = 0; i < depth; i++) strcat(text, "]");
        strcat(text, "}");
        if (depth == 63) {
            ls_json *json = parse(text);
            assert_non_null(json);
            ls_json_close(json);
        } else {
            assert_refused(text, "f.json:2: too deeply nested");
        }
    }
}

TEST(test_values_are_bounded) {
    size_t count = (size_t)5 << 20, length = 0;
    char *text = malloc(2 * count + 32);
    assert_non_null(text);
    length += (size_t)sprintf(text, "{\"a\": [0");
    for (size_t i = 1; i < count; i++) {
        text[length++] = ',';
        text[length++] = '0';
    }
    text[length] = '\0';
    strcat(text + length, "]}");
    assert_refused(text, "f.json:1: too many values");
    free(text);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

TEST(test_files) {
    char path[] = "/tmp/ls_test_json_XXXXXX";
    static const char text[] = "\xEF\xBB\xBF{\n\"a\": 1, \"b\": \"c\"}";
    ls_json *json;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    assert_int_equal(ls_json_open(&json, path), LS_OK); /* with a byte order mark */
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    (void)ls_json_number(json, ls_json_root(json), "b", 0, 1);
    assert_non_null(strstr(message, ":2: b must be a number"));
    assert_non_null(strstr(message, path));
    ls_json_close(json);
    unlink(path);
    message[0] = '\0';
    assert_int_equal(ls_json_open(&json, path), LS_ERR_IO);
    assert_non_null(strstr(message, path));
    message[0] = '\0';
    assert_int_equal(ls_json_open(&json, "/tmp"), LS_ERR_IO);
    ls_log_restore(sink);
    assert_null(json);
}
