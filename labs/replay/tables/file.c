/* file — reads a table's parts from its JSON.
 *   idea  : members are rows of a list: name, offset, kind. The object that has the rows is read first, and each row
 *           into a copy of it, so that common members are written once
 *   fails : json.h reports the first error, with its line; reading continues, and the file is then dropped */
#include "labs/replay/tables/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/engine/library.h"

#define LEAST 1e-9
#define MOST 1e9

#define COLUMN_NAME(name, text, what) text,
static const char *const columns[] = {TABLES_COLUMN_MAP(COLUMN_NAME) NULL};

enum kind { TEXT, NUMBER, FLAG, NUMBERS, PAIRS, PLAN, T1, FREE, MUST, COLUMN, COMPUTATION };
#define COMPUTATION_NAME(name, function) #function,
static const char *const computations[] = {TABLES_COMPUTATION_MAP(COMPUTATION_NAME) NULL};
static const char *const *const choices[] = {
    [PLAN] = (const char *const[]){"single", "dp", "ddp", NULL},
    [T1] = (const char *const[]){"step", "forward and backward", NULL},
    [FREE] = (const char *const[]){"one rank", "single", "T1 / N", NULL},
    [MUST] = (const char *const[]){"be shown", "be within", "be below", "be above", "count in the sums", NULL},
    [COLUMN] = columns,
    [COMPUTATION] = computations,
};

#define PART_MEMBER(kind, name, what) {#name, offsetof(struct tables_part, name), kind},
#define RUN_MEMBER(kind, name, what) {#name, offsetof(struct tables_part, run.name), kind},
static const struct member {
    const char *name;
    size_t offset;
    enum kind kind;
} members[] = {TABLES_PART_MAP(PART_MEMBER) TABLES_RUN_MAP(RUN_MEMBER)};

double tables_published(const struct tables_part *row, int index) {
    int count = cJSON_GetArraySize(row->published);
    return count > 0 ? cJSON_GetNumberValue(cJSON_GetArrayItem(row->published, count > 1 ? index : 0)) : NAN;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

static void check_numbers(ls_json *json, const cJSON *array, bool pairs) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (pairs && cJSON_GetArraySize(item) == 2)
            check_numbers(json, item, false);
        else if (pairs || !cJSON_IsNumber(item) || !(item->valuedouble >= LEAST && item->valuedouble <= MOST))
            ls_json_refuse(json, item, pairs ? "expected two numbers" : "expected a number from 1e-9 to 1e9");
    }
}

static int read_choice(ls_json *json, const cJSON *object, const char *name, enum kind kind) {
    char all[300] = "";
    const char *text = ls_json_text(json, object, name);
    for (int i = 0; choices[kind][i]; i++) {
        if (strcmp(text, choices[kind][i]) == 0) return i + 1;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\"%s\"", i > 0 ? ", " : "", choices[kind][i]);
    }
    ls_json_refuse(json, cJSON_GetObjectItemCaseSensitive(object, name), "%s is one of %s", name, all);
    return 0;
}

static void read_member(struct tables_part *part, ls_json *json, const cJSON *object, const struct member *member) {
    void *to = (char *)part + member->offset;
    bool changes_run = member->offset > offsetof(struct tables_part, run.plan);
    if (changes_run && member->offset < offsetof(struct tables_part, run) + sizeof part->run) part->run.number = 0;
    switch (member->kind) {
    case TEXT: *(const char **)to = ls_json_text(json, object, member->name); break;
    case NUMBER: *(double *)to = ls_json_number(json, object, member->name, 0, MOST); break;
    case FLAG: *(bool *)to = ls_json_bool(json, object, member->name); break;
    case NUMBERS:
    case PAIRS:
        *(const cJSON **)to = ls_json_array(json, object, member->name);
        check_numbers(json, *(const cJSON **)to, member->kind == PAIRS);
        break;
    default: *(int *)to = read_choice(json, object, member->name, member->kind);
    }
}

static void read_members(struct tables_part *part, ls_json *json, const cJSON *object) {
    const size_t count = sizeof members / sizeof *members;
    const cJSON *item;
    if (!cJSON_IsObject(object)) {
        ls_json_refuse(json, object, "expected an object, { ... }");
        return;
    }
    cJSON_ArrayForEach(item, object) {
        const char *name = item->string ? item->string : "";
        size_t i = 0;
        if (strcmp(name, "rows") == 0 || strncmp(name, "source_of_", 10) == 0) continue;
        while (i < count && strcmp(name, members[i].name) != 0) i++;
        if (i < count)
            read_member(part, json, object, &members[i]);
        else
            ls_json_refuse(json, item, "%.80s is not a known key", name);
    }
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static void require(const tables_file *file, const cJSON *object, bool holds, const char *what) {
    if (!holds) ls_json_refuse(file->json, object, "%s", what);
}

static void check_run(const tables_file *file, const cJSON *object, const struct tables_run *run, bool replayed) {
    require(file, object, !!run->train + !!run->node + !!run->times_ms == 1,
            "a row has a node, or trains, or has times_ms");
    require(file, object, !run->node || run->workload || !replayed, "a row that is replayed has a workload");
    require(file, object, run->plan || !replayed, "a row has a plan");
    require(file, object, !run->calibrated_by || run->t1_ms + run->t1_epoch_s > 0, "calibrated by a time, t1_ms");
    require(file, object, !run->latencies_us || cJSON_GetArraySize(run->latencies_us) == 2,
            "latencies_us are those of two and of three ranks");
    require(file, object, !run->network || cJSON_GetArraySize(run->network) == 2, "network is a hop and a rate");
    require(file, object, cJSON_GetArraySize(run->all_reduce_ms) <= TABLES_ALL_REDUCES_MAX,
            "more all_reduce_ms than 8");
    require(file, object, run->shard_state <= 3 && run->shard_state == floor(run->shard_state),
            "shard_state is a stage of ZeRO, 1 to 3");
}

static bool is_same(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

/* There are as many published figures as N, with a source and a bound. Each figure has one row. */
static void check_row(const tables_file *file, const cJSON *object, const struct tables_part *row) {
    const cJSON *n;
    int lines = cJSON_GetArraySize(row->n), published = cJSON_GetArraySize(row->published);
    require(file, object, row->how && row->mode && row->column, "a row has a mode, a column, and how it was obtained");
    require(file, object, row->must,
            "a row says what it must: be shown, be within, be below, be above, or count in the sums");
    require(file, object, lines > 0, "\"n\" is an array of numbers of devices");
    cJSON_ArrayForEach(n, row->n) {
        double micro_batches = row->run.micro_batch > 0 ? row->run.batch / n->valuedouble / row->run.micro_batch : 1;
        require(file, n, n->valuedouble == floor(n->valuedouble) && n->valuedouble <= TABLES_DEVICES_MAX,
                "no number of devices");
        require(file, n, micro_batches >= 1 && micro_batches == floor(micro_batches),
                "a device's share of the batch is no whole number of micro-batches");
    }
    require(file, object, published < 2 || published == lines || row->reference,
            "as many published figures as n, or one");
    require(file, object, published == 0 || row->source || file->source || row->reference,
            "a published figure has a source");
    require(file, object, row->must == TABLES_MUST_BE_SHOWN || published > 0 || row->reference,
            "a bound, and nothing to compare with");
    require(file, object, row->must != TABLES_MUST_BE_WITHIN || row->tolerance > 0, "within which tolerance?");
    check_run(file, object, &row->run,
              row->column != TABLES_ALL_REDUCE_US || row->reference || row->run.calibrated_by ||
                  row->run.parameters > 0);
    for (int i = 0; i < file->count; i++) {
        const struct tables_part *other = &file->parts[i];
        bool same = is_same(other->quantity, row->quantity) && is_same(other->mode, row->mode);
        require(file, object, !same || !is_same(other->how, row->how), "this row is there twice");
    }
}

/* Rows that count in the sums since the last sums; without_free: those without a time for free communication. */
static int count_summed(const tables_file *file, int *without_free) {
    int count = 0;
    *without_free = 0;
    for (int i = file->count - 1; i >= 0 && !file->parts[i].sums; i--) {
        bool counts = file->parts[i].must == TABLES_COUNTS_IN_SUMS;
        count += counts;
        *without_free += counts && !file->parts[i].free;
    }
    return count;
}

static void check_sums(const tables_file *file, const cJSON *object, const struct tables_part *sums) {
    int without_free, summed = count_summed(file, &without_free);
    require(file, object, summed > 0 && sums->unit && sums->how && sums->mean_error > 0,
            "sums have a unit, how they were obtained, a bound on the mean error, and rows that count in them");
    require(file, object, sums->of_free == 0 || without_free == 0, "of_free, and rows that tell nothing \"free\"");
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

static void add_part(tables_file *file, const cJSON *object, const struct tables_part *part) {
    if (ls_json_failed(file->json)) return;
    if (part->quantity) check_row(file, object, part);
    if (part->sums) check_sums(file, object, part);
    require(file, object, !part->from || part->how, "a group of rows has how it was obtained");
    require(file, object, file->count < TABLES_PARTS_MAX, "more rows and paragraphs than there is room for");
    if (!ls_json_failed(file->json)) file->parts[file->count++] = *part;
}

static void read_rows(tables_file *file, const cJSON *object, const struct tables_part *shared) {
    const cJSON *row, *rows = cJSON_GetObjectItemCaseSensitive(object, "rows");
    rows = cJSON_IsString(rows)
               ? ls_json_array(file->json, ls_json_object(file->json, ls_json_root(file->json), "lists"),
                               rows->valuestring)
               : ls_json_array(file->json, object, "rows");
    cJSON_ArrayForEach(row, rows) {
        struct tables_part part = *shared;
        read_members(&part, file->json, row);
        if (part.run.number == 0) part.run.number = ++file->run_count;
        require(file, row, part.quantity, "a row has a quantity");
        add_part(file, row, &part);
    }
}

static void read_part(tables_file *file, const cJSON *object) {
    struct tables_part part = {.run = {.bucket_MB = NAN}};
    bool rows = ls_json_has(object, "rows");
    read_members(&part, file->json, object);
    part.run.number = ++file->run_count;
    require(file, object, rows + !!part.text + !!part.from + !!part.sums == 1,
            "a part is a text, rows, the rows from a group, or sums");
    if (rows)
        read_rows(file, object, &part);
    else
        add_part(file, object, &part);
}

ls_status tables_file_open(tables_file *file, const char *name) {
    static const char *const known[] = {"title", "source", "compute", "parts", "lists", NULL};
    char path[LS_SHIPPED_PATH];
    int without_free;
    *file = (tables_file){.count = 0};
    ls_status status = ls_library_find(path, "labs/replay/tables", name);
    if (status == LS_OK) status = ls_json_open(&file->json, path);
    if (status != LS_OK) return status;
    const cJSON *part, *root = ls_json_root(file->json), *parts = ls_json_array(file->json, root, "parts");
    ls_json_only(file->json, root, known);
    file->title = ls_json_text(file->json, root, "title");
    if (ls_json_has(root, "source")) file->source = ls_json_text(file->json, root, "source");
    if (ls_json_has(root, "compute")) file->compute = read_choice(file->json, root, "compute", COMPUTATION);
    cJSON_ArrayForEach(part, parts) read_part(file, part);
    require(file, parts, count_summed(file, &without_free) == 0, "rows count in sums that are not there");
    if (!ls_json_failed(file->json)) return LS_OK;
    tables_file_close(file);
    return LS_ERR_INVALID;
}

void tables_file_close(tables_file *file) {
    ls_json_close(file->json);
    *file = (tables_file){.count = 0};
}
