/* JSON files that people write (nodes, workloads) and lines of traces: read with cJSON, refused with file and line.
 *
 *     ls_json *json;
 *     ls_status status = ls_json_open(&json, "labs/replay/nodes/dgx1-v100.json");
 *     const cJSON *device = ls_json_object(json, ls_json_root(json), "device");
 *     double rate = ls_json_number(json, device, "fp32_GFLOPs", 1, 1e9);
 *     ...
 *     if (ls_json_failed(json)) ...      // the first error has been reported, with file and line
 *     ls_json_close(json);
 *
 * Accessors never stop the reader: the first missing or wrong member is reported, later ones are not, and a harmless
 * value is returned (0, "", NULL; a NULL object or array causes no further report). One thread at a time. */
#ifndef LS_BASE_JSON_H
#define LS_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "common/base/log.h"
#include "common/base/status.h"

typedef struct ls_json ls_json;

/* Reads a regular file of at most 64 MiB, 64 levels and 4 Mi values. LS_ERR_IO: it cannot be read; LS_ERR_INVALID: it
 * is not JSON ("FILE:LINE: ..."), its root is not an object, or an object has two members of one name;
 * LS_ERR_NO_MEMORY. On failure *out is NULL. */
ls_status ls_json_open(ls_json **out, const char *path);

/* The same from memory; `name` and `first_line` are for messages (a trace is read event by event). */
ls_status ls_json_parse(ls_json **out, const char *name, size_t first_line, const char *text, size_t nbytes);

void ls_json_close(ls_json *json); /* NULL is a no-op */

const cJSON *ls_json_root(const ls_json *json);
bool ls_json_failed(const ls_json *json);

/* Required members of an object. Numbers must be finite and within lowest .. highest; whole ones have no fraction and
 * an absolute value below 2^53. */
double ls_json_number(ls_json *json, const cJSON *object, const char *name, double lowest, double highest);
int64_t ls_json_whole(ls_json *json, const cJSON *object, const char *name, int64_t lowest, int64_t highest);
const char *ls_json_text(ls_json *json, const cJSON *object, const char *name);
bool ls_json_bool(ls_json *json, const cJSON *object, const char *name);
const cJSON *ls_json_object(ls_json *json, const cJSON *object, const char *name);
const cJSON *ls_json_array(ls_json *json, const cJSON *object, const char *name);

/* Whether the object has the member. For optional members. */
bool ls_json_has(const cJSON *object, const char *name);

/* Refuses members that are not in `names` (ended by NULL): a misspelt name is not a default. */
void ls_json_only(ls_json *json, const cJSON *object, const char *const *names);

/* Reports "FILE:LINE: ..." about a value, unless something has been reported before; the file is then refused. */
void ls_json_refuse(ls_json *json, const cJSON *value, const char *format, ...) LS_PRINTF(3, 4);

#endif
