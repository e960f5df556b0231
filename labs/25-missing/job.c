#include "labs/25-missing/job.h"

#include <stdio.h>
#include <string.h>

#include "common/comm/reduce_kernels.h"

enum { BUCKETS = 3 };

const char *const job_way_names[WAYS] = {"does as all do",
                                         "skips bucket 1",
                                         "reduces bucket 1 twice",
                                         "swaps buckets 1 and 2",
                                         "has one element more in bucket 1",
                                         "has int64 in bucket 1",
                                         "takes the maximum in bucket 1",
                                         "reduces bucket 1 to rank 0 only",
                                         "calls bucket 1 bucket 7",
                                         "skips its messages",
                                         "receives one element less"};

void job_open(job *j, probe *p, int ranks, int program) {
    *j = (job){.p = p, .program = program, .record = ls_flight_create(ranks, JOB_GROUPS + 1)};
    probe_must(p, "memory", j->record ? LS_OK : LS_ERR_NO_MEMORY);
    ls_flight_record *record = j->record;
    record->group_count = 1;
    record->groups[0] = (ls_flight_group){.name = "group0", .first = 0, .stride = 1, .size = ranks};
    for (int first = 0; (program & PAIRS) && first + 1 < ranks; first += 2) {
        ls_flight_group *pair = &record->groups[record->group_count++];
        *pair = (ls_flight_group){.first = first, .stride = 1, .size = 2};
        snprintf(pair->name, sizeof pair->name, "pair%d", first / 2);
    }
}

void job_close(job *j) { ls_flight_free(j->record); }

/* --- a rank's operations -------------------------------------------------------------------------------------------- */

static ls_flight_operation *add(job *j, int rank, int group, ls_operation_kind kind, uint64_t count) {
    ls_flight_rank *r = &j->record->ranks[rank];
    ls_flight_operation *o = &r->operations[r->count++];
    *o = (ls_flight_operation){.number = (uint64_t)r->count,
                               .group = group,
                               .kind = kind,
                               .count = count,
                               .root = -1,
                               .label_number = -1,
                               .state = LS_FLIGHT_DONE};
    return o;
}

static ls_flight_operation *add_collective(job *j, int rank, int group, ls_operation_kind kind, uint64_t count) {
    ls_flight_operation *o = add(j, rank, group, kind, count);
    o->sequence = ++j->called[rank][group];
    return o;
}

static void add_message(job *j, int rank, ls_operation_kind kind, int peer, const char *label, uint64_t count) {
    if (peer < 0 || peer >= j->record->world_size) return;
    ls_flight_operation *o = add(j, rank, 0, kind, count);
    o->root = peer;
    snprintf(o->label, sizeof o->label, "%s", label);
    if (kind != LS_OPERATION_RECV) o->sequence = ++j->sent[rank][peer];
    if (kind != LS_OPERATION_SEND) o->received = ++j->received[rank][peer];
}

static void add_bucket(job *j, int rank, int bucket, enum way way) {
    ls_flight_operation *o = add_collective(j, rank, 0, LS_OPERATION_ALL_REDUCE, 100 * ((uint64_t)bucket + 1));
    snprintf(o->label, sizeof o->label, "bucket");
    o->label_number = bucket;
    o->dtype = LS_FP32;
    o->op = LS_REDUCE_SUM;
    if (bucket != 1) return;
    if (way == COUNTS) o->count++;
    if (way == TYPES) o->dtype = LS_INT64;
    if (way == MAXIMUM) o->op = LS_REDUCE_MAX;
    if (way == LABELS) o->label_number = 7;
    if (way != REDUCES) return;
    o->kind = LS_OPERATION_REDUCE;
    o->root = 0;
}

static void add_messages(job *j, int rank, enum way way) {
    const uint64_t shorter = way == SHORTENS;
    if (way == SKIPS_MESSAGES) return;
    if (j->program & CHAIN) {
        add_message(j, rank, LS_OPERATION_RECV, rank - 1, "activations", 80 - shorter);
        add_message(j, rank, LS_OPERATION_SEND, rank + 1, "activations", 80);
    }
    if (j->program & BACK) {
        add_message(j, rank, LS_OPERATION_RECV, rank + 1, "gradients", 80 - shorter);
        add_message(j, rank, LS_OPERATION_SEND, rank - 1, "gradients", 80);
    }
    if (j->program & EXCHANGE) add_message(j, rank, LS_OPERATION_SEND_RECV, rank ^ 1, "halo", 30 - shorter);
}

static void run_step(job *j, int rank, enum way way) {
    static const int right[BUCKETS] = {0, 1, 2}, other[BUCKETS] = {0, 2, 1};
    ls_flight_operation *buffers = add_collective(j, rank, 0, LS_OPERATION_BROADCAST, 96);
    buffers->root = 0;
    snprintf(buffers->label, sizeof buffers->label, "buffers");
    if ((j->program & PAIRS) && 1 + rank / 2 < j->record->group_count)
        add_collective(j, rank, 1 + rank / 2, LS_OPERATION_ALL_GATHER, 10 + (uint64_t)rank / 2);
    add_messages(j, rank, way);
    for (int i = 0; i < BUCKETS; i++) {
        int bucket = way == SWAPS ? other[i] : right[i];
        if (bucket == 1 && way == SKIPS) continue;
        if (bucket == 1 && way == REPEATS) add_bucket(j, rank, bucket, way);
        add_bucket(j, rank, bucket, way);
    }
}

void job_run(job *j, int rank, enum way way, int odd_step, int steps) {
    for (int step = 1; step <= steps; step++) run_step(j, rank, step == odd_step ? way : STRAIGHT);
}

/* --- where ranks are ------------------------------------------------------------------------------------------------ */

void job_wait(job *j, int rank, int place, int ahead) {
    ls_flight_rank *r = &j->record->ranks[rank];
    if (place < 0 || place >= r->count) return;
    if (r->count > place + 1 + ahead) r->count = place + 1 + ahead;
    for (int i = place; i < r->count; i++) r->operations[i].state = i == place ? LS_FLIGHT_STARTED : LS_FLIGHT_ENQUEUED;
}

void job_end(job *j, int rank, int place) {
    ls_flight_rank *r = &j->record->ranks[rank];
    if (place >= 0 && place < r->count) r->count = place;
}

static bool is_message(const ls_flight_operation *o) {
    return o->kind == LS_OPERATION_SEND || o->kind == LS_OPERATION_RECV || o->kind == LS_OPERATION_SEND_RECV;
}

int job_collective(const job *j, int rank, int group, uint64_t sequence) {
    const ls_flight_rank *r = &j->record->ranks[rank];
    for (int i = 0; i < r->count; i++) {
        const ls_flight_operation *o = &r->operations[i];
        if (o->group == group && !is_message(o) && o->sequence == sequence) return i;
    }
    return -1;
}

int job_message(const job *j, int rank, int peer, int place) {
    const ls_flight_rank *r = &j->record->ranks[rank];
    for (int i = place + 1; i < r->count; i++)
        if (is_message(&r->operations[i]) && r->operations[i].root == peer) return i;
    return -1;
}

uint64_t job_bucket_1(int step) { return (uint64_t)(step - 1) * JOB_STEP + 3; }

void job_meet_at(job *j, uint64_t number, unsigned absent, int ahead) {
    for (int r = 0; r < j->record->world_size; r++) {
        int place = job_collective(j, r, 0, number);
        if (absent >> r & 1)
            job_end(j, r, place);
        else
            job_wait(j, r, place, ahead > 0 ? 1 + (int)probe_draw(j->p, (uint64_t)ahead) : 0);
    }
}

static void wrap_rank(ls_flight_rank *r, int groups) {
    int held[JOB_GROUPS + 1] = {0}, kept = 0;
    bool keeps[LS_FLIGHT_KEPT * LS_FLIGHT_GROUPS] = {false};
    for (int i = r->count - 1; i >= 0; i--) {
        int group = r->operations[i].group;
        keeps[i] = group < groups && held[group]++ < LS_FLIGHT_KEPT;
    }
    for (int i = 0; i < r->count; i++)
        if (keeps[i]) r->operations[kept++] = r->operations[i];
    r->count = kept;
}

void job_wrap(job *j) {
    for (int r = 0; r < j->record->world_size; r++) wrap_rank(&j->record->ranks[r], j->record->group_count);
}

/* --- results -------------------------------------------------------------------------------------------------------- */

static const char *operation_text(char text[LS_FLIGHT_TEXT + 64], const ls_flight_operation *o) {
    char name[LS_FLIGHT_TEXT];
    if (!o) return "none";
    snprintf(text, LS_FLIGHT_TEXT + 64, "%s (%d %s, %s)", ls_flight_operation_text(name, o), (int)o->count,
             ls_dtype_name((ls_dtype)o->dtype), ls_reduce_op_name((ls_reduce_op)o->op));
    return text;
}

void job_see(const job *j, int group) {
    static const char *const kinds[] = {"none", "ranks run different operations", "a message has no match",
                                        "ranks are missing", "not known"};
    char text[LS_FLIGHT_TEXT + 64], odd[JOB_MOST_RANKS * 3 + 1] = "";
    ls_flight_difference d = ls_flight_find_difference(j->record, group);
    probe_see(j->p, "the first difference", "%s", (unsigned)d.kind < 5 ? kinds[d.kind] : "of no kind");
    if (d.kind == LS_FLIGHT_SAME) return;
    for (int r = 0; r < j->record->world_size; r++)
        if (d.odd[r]) snprintf(odd + strlen(odd), sizeof odd - strlen(odd), " %d", r);
    probe_see(j->p, "odd ranks", "%s", odd[0] ? odd + 1 : "none");
    probe_see(j->p, "the expected operation", "%s", operation_text(text, d.expected));
    if (d.kind == LS_FLIGHT_DIFFERS) probe_see(j->p, "what odd ranks run", "%s", operation_text(text, d.found));
}
