/* agree — which ranks differ from rank 0, and in which facts.
 *   idea  : each rank sets its facts under a key of its own. Rank 0 fetches them one by one, compares each with its
 *           own, and sets one verdict, which the others wait for. Ranks with the same difference share a line
 *   cost  : 2 W - 1 values set, 2 (W - 1) fetched, most of them by rank 0; equal facts are one memcmp
 *   fails : a failure of rank 0 is published as the verdict, so that no rank waits for a rank 0 that has ended. A
 *           rank that gets no verdict finds out which ranks have set their facts, and names the others */
#include "ddp_procs/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

enum { LINES_MOST = 16, SHOWN_CAPACITY = 240, LINE_CAPACITY = 1024, KEY_CAPACITY = 64, MESSAGE_CAPACITY = 600 };
#define VERDICT_GRACE_S 0.5

/* What rank 0 publishes: the outcome, and a line per difference, or one line with the error. */
enum kind { SAME = 'S', DIFFERENT = 'D', FAILED = 'F' };
typedef struct verdict {
    char kind;
    char text[(LINES_MOST + 1) * LINE_CAPACITY]; /* of DIFFERENT: lines that begin with their ranks, as bits */
} verdict;

_Static_assert(sizeof(verdict) <= DDP_STORE_VALUE_MAX && DDP_FACTS_CAPACITY <= DDP_STORE_VALUE_MAX,
               "the store has no room for the ranks' messages");

/* One comparison of the ranks of a job. */
typedef struct meeting {
    const ddp_agreement *job;
    const char *about;
} meeting;

static const char *rank_key(char key[KEY_CAPACITY], const meeting *m, int rank) {
    snprintf(key, KEY_CAPACITY, "run%" PRId64 "/%s/rank%d", m->job->run, m->about, rank);
    return key;
}

static const char *verdict_key(char key[KEY_CAPACITY], const meeting *m) {
    snprintf(key, KEY_CAPACITY, "run%" PRId64 "/%s/verdict", m->job->run, m->about);
    return key;
}

/* --- one line per difference ---------------------------------------------------------------------------------------- */

typedef struct difference {
    const char *name;
    char there[SHOWN_CAPACITY], here[SHOWN_CAPACITY]; /* on these ranks, and on rank 0 */
    bool ranks[LS_COMM_MAX_RANKS];
} difference;

typedef struct comparison {
    const ddp_facts *mine;
    int world_size, count, more; /* lines, and differences beyond LINES_MOST of them */
    bool more_ranks[LS_COMM_MAX_RANKS];
    difference lines[LINES_MOST];
} comparison;

/* A value as a line shows it. The middle of a long value is left out, since two long values may well begin alike. */
static void show(char shown[SHOWN_CAPACITY], const char *value) {
    enum { HALF = SHOWN_CAPACITY / 2 - 4 };
    size_t length = strlen(value);
    if (length < SHOWN_CAPACITY) {
        memcpy(shown, value, length + 1);
    } else {
        snprintf(shown, SHOWN_CAPACITY, "%.*s...%s", HALF, value, value + length - HALF);
    }
    for (char *c = shown; (c = strchr(c, '\n'));) *c = '?'; /* a newline would end the line of the verdict */
}

static void note(comparison *c, int rank, const char *name, const char *there, const char *here) {
    char shown[SHOWN_CAPACITY];
    show(shown, there);
    for (int i = 0; i < c->count; i++) {
        difference *d = &c->lines[i];
        if (d->name != name || strcmp(d->there, shown) != 0) continue;
        d->ranks[rank] = true;
        return;
    }
    if (c->count == LINES_MOST) {
        c->more++;
        c->more_ranks[rank] = true;
        return;
    }
    difference *d = &c->lines[c->count++];
    *d = (difference){.name = name};
    memcpy(d->there, shown, sizeof shown);
    show(d->here, here);
    d->ranks[rank] = true;
}

/* Compares rank 0's names only: a rank with other names runs another build of the program, and so differs in a name
 * that all have. */
static void compare(comparison *c, int rank, const ddp_facts *theirs) {
    const ddp_facts *mine = c->mine;
    if (theirs->nbytes == mine->nbytes && memcmp(theirs->bytes, mine->bytes, mine->nbytes) == 0) return;
    const char *name, *here;
    for (size_t at = 0; ddp_facts_next(mine, &at, &name, &here);) {
        const char *there = ddp_facts_find(theirs, name);
        if (!there) there = "not known";
        if (strcmp(there, here) != 0) note(c, rank, name, there, here);
    }
}

static uint64_t bits_of(const bool *ranks) {
    uint64_t bits = 0;
    for (int r = 0; r < LS_COMM_MAX_RANKS; r++) bits |= (uint64_t)ranks[r] << r;
    return bits;
}

static void write_lines(verdict *v, const comparison *c) {
    char ranks[LS_RANKS_TEXT_CAPACITY];
    size_t used = 0;
    for (int i = 0; i < c->count; i++) {
        const difference *d = &c->lines[i];
        uint64_t bits = bits_of(d->ranks);
        const char *verb = (bits & (bits - 1)) == 0 ? "has" : "have";
        used += (size_t)snprintf(v->text + used, sizeof v->text - used,
                                 "%016" PRIx64 " %s: %s %s %s, but rank 0 has %s; expected the same on all ranks\n",
                                 bits, d->name, ls_ranks_text(ranks, d->ranks, c->world_size), verb, d->there, d->here);
    }
    if (c->more == 0) return;
    snprintf(v->text + used, sizeof v->text - used, "%016" PRIx64 " %d more differences between rank 0 and %s\n",
             bits_of(c->more_ranks), c->more, ls_ranks_text(ranks, c->more_ranks, c->world_size));
}

/* --- ranks that did not arrive ------------------------------------------------------------------------------------ */

/* ddp_store_get whose error goes to `message` instead of to the user. */
static ls_status get(const meeting *m, const char *key, void *value, size_t capacity, size_t *nbytes,
                     char message[MESSAGE_CAPACITY]) {
    ls_log_sink before = ls_log_capture(message, MESSAGE_CAPACITY);
    ls_status status = ddp_store_get(m->job->store, key, value, capacity, nbytes);
    ls_log_restore(before);
    return status;
}

/* After a timeout: names the ranks whose facts are missing, or rank 0 if none are. */
static void write_missing(const meeting *m, char *text, size_t capacity) {
    char key[KEY_CAPACITY], message[MESSAGE_CAPACITY], ranks[LS_RANKS_TEXT_CAPACITY];
    bool missing[LS_COMM_MAX_RANKS] = {false}, any = false;
    ls_log_sink before = ls_log_capture(message, sizeof message);
    for (int r = 0; r < m->job->world_size; r++) {
        bool exists = true;
        if (ddp_store_check(m->job->store, rank_key(key, m, r), &exists) != LS_OK) break;
        missing[r] = !exists;
        any = any || missing[r];
    }
    ls_log_restore(before);
    missing[0] = missing[0] || !any;
    snprintf(text, capacity,
             "%s of %d did not arrive within %g s to compare the ranks' %s: was every rank started, with the same "
             "MASTER_ADDR and MASTER_PORT?",
             ls_ranks_text(ranks, missing, m->job->world_size), m->job->world_size, m->job->timeout_s, m->about);
}

/* --- rank 0 --------------------------------------------------------------------------------------------------------- */

/* Compares the facts of all ranks. If it fails, v->text has the reason; LS_ERR_PEER: a rank has given up. */
static ls_status collect(const meeting *m, comparison *c, ddp_facts *theirs, verdict *v) {
    for (int r = 1; r < m->job->world_size; r++) {
        char key[KEY_CAPACITY], message[MESSAGE_CAPACITY];
        ls_status status = get(m, rank_key(key, m, r), theirs->bytes, sizeof theirs->bytes, &theirs->nbytes, message);
        if (status == LS_OK && theirs->nbytes == 0) {
            snprintf(v->text, sizeof v->text, "rank %d of %d failed before the first step; see its error", r,
                     m->job->world_size);
            return LS_ERR_PEER;
        }
        if (status == LS_ERR_TIMEOUT) {
            write_missing(m, v->text, sizeof v->text);
        } else if (status != LS_OK) {
            snprintf(v->text, sizeof v->text, "%s", message);
        }
        if (status != LS_OK) return status;
        compare(c, r, theirs);
    }
    return LS_OK;
}

static ls_status make_verdict(const meeting *m, const ddp_facts *mine, verdict *v) {
    comparison *c = calloc(1, sizeof *c);
    ddp_facts *theirs = calloc(1, sizeof *theirs);
    snprintf(v->text, sizeof v->text, "rank 0 has no memory to compare the ranks' %s", m->about);
    ls_status status = c && theirs ? LS_OK : LS_ERR_NO_MEMORY;
    if (status == LS_OK) {
        v->text[0] = '\0';
        c->mine = mine;
        c->world_size = m->job->world_size;
        status = collect(m, c, theirs, v);
        v->kind = status != LS_OK ? FAILED : c->count > 0 ? DIFFERENT : SAME;
        if (v->kind == DIFFERENT) write_lines(v, c);
    }
    free(c);
    free(theirs);
    return status;
}

static ls_status publish(const meeting *m, const verdict *v) {
    char key[KEY_CAPACITY];
    return ddp_store_set(m->job->store, verdict_key(key, m), v, offsetof(verdict, text) + strlen(v->text));
}

/* --- all ranks ------------------------------------------------------------------------------------------------------ */

/* Fetches rank 0's verdict; a failure is reported. Rank 0 waits as long for the last rank as this rank waits for the
 * verdict: the extra time lets the verdict arrive before rank 0 and its store end. */
static ls_status fetch_verdict(const meeting *m, verdict *v) {
    char key[KEY_CAPACITY], message[MESSAGE_CAPACITY], late[LINE_CAPACITY];
    size_t nbytes = 0, head = offsetof(verdict, text);
    ddp_store_set_timeout(m->job->store, m->job->timeout_s + VERDICT_GRACE_S);
    ls_status status = get(m, verdict_key(key, m), v, sizeof *v - 1, &nbytes, message);
    ddp_store_set_timeout(m->job->store, m->job->timeout_s);
    if (status == LS_ERR_TIMEOUT) {
        write_missing(m, late, sizeof late);
        return ls_fail(status, "%s", late);
    }
    if (status != LS_OK) return ls_fail(status, "%s", message);
    if (nbytes < head) return ls_fail(LS_ERR_INVALID, "the verdict of rank 0 on the ranks' %s is damaged", m->about);
    v->text[nbytes - head] = '\0';
    return LS_OK;
}

/* Reports all lines on rank 0, and on other ranks the lines about this rank, or the first line if there are none. */
static ls_status report_differences(const meeting *m, char *text) {
    int reported = 0;
    char *first = NULL, *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *words;
        uint64_t ranks = strtoull(line, &words, 16);
        if (*words == ' ') words++;
        if (!first) first = words;
        if (m->job->rank > 0 && !(ranks >> m->job->rank & 1)) continue;
        ls_report_error("%s", words);
        reported++;
    }
    if (reported == 0) ls_report_error("%s", first ? first : "the ranks differ");
    return LS_ERR_USAGE;
}

static ls_status apply_verdict(const meeting *m, verdict *v, ls_status of_rank_0) {
    if (v->kind == DIFFERENT) return report_differences(m, v->text);
    if (v->kind == SAME) return LS_OK;
    return ls_fail(m->job->rank == 0 ? of_rank_0 : LS_ERR_PEER, "%s", v->text);
}

static ls_status exchange_facts(const meeting *m, const ddp_facts *mine, verdict *v) {
    char key[KEY_CAPACITY];
    int rank = m->job->rank;
    ls_status judged = LS_OK, status = ddp_store_set(m->job->store, rank_key(key, m, rank), mine->bytes, mine->nbytes);
    if (status == LS_OK && rank == 0) {
        v->kind = FAILED;
        judged = make_verdict(m, mine, v);
        status = publish(m, v);
    } else if (status == LS_OK) {
        status = fetch_verdict(m, v);
    }
    return status == LS_OK ? apply_verdict(m, v, judged) : status;
}

ls_status ddp_agree_begin(ddp_agreement *a, ddp_store *store, const ddp_rank *self, double timeout_s) {
    char key[KEY_CAPACITY];
    *a = (ddp_agreement){store, self->rank, self->world_size, timeout_s, 1, false};
    snprintf(key, sizeof key, "runs/rank%d", a->rank);
    return ddp_store_add(store, key, 1, &a->run);
}

void ddp_agree_late(ddp_agreement *a) {
    a->late = a->run > 1;
    a->run = 1;
}

/* Compares with rank 0's facts, which have been set. */
static ls_status compare_late(const meeting *m, const ddp_facts *mine, verdict *v) {
    char key[KEY_CAPACITY];
    comparison *c = calloc(1, sizeof *c);
    ddp_facts *first = calloc(1, sizeof *first);
    ls_status status =
        c && first ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the ranks' %s", m->about);
    if (status == LS_OK)
        status = ddp_store_get(m->job->store, rank_key(key, m, 0), first->bytes, sizeof first->bytes, &first->nbytes);
    if (status == LS_OK) {
        c->mine = first;
        c->world_size = m->job->world_size;
        compare(c, m->job->rank, mine);
        write_lines(v, c);
        if (c->count > 0) status = report_differences(m, v->text);
    }
    free(c);
    free(first);
    return status;
}

ls_status ddp_agree(const ddp_agreement *a, const char *about, const ddp_facts *mine) {
    const meeting m = {a, about};
    if (mine->full || mine->nbytes == 0)
        return ls_fail(LS_ERR_INVALID, "the %s of rank %d cannot be compared: there are %s", about, a->rank,
                       mine->full ? "too many" : "none");
    if (a->world_size == 1) return LS_OK;
    verdict *v = calloc(1, sizeof *v);
    if (!v) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the ranks' %s", about);
    ls_status status = a->late ? compare_late(&m, mine, v) : exchange_facts(&m, mine, v);
    free(v);
    return status;
}

void ddp_agree_give_up(const ddp_agreement *a, const char *about) {
    const meeting m = {a, about};
    char key[KEY_CAPACITY], message[MESSAGE_CAPACITY];
    if (a->world_size == 1 || a->late) return;
    ls_log_sink before = ls_log_capture(message, sizeof message);
    if (a->rank == 0) {
        verdict *v = calloc(1, sizeof *v);
        if (v) {
            *v = (verdict){FAILED, "rank 0 failed before the first step; see its error"};
            (void)publish(&m, v);
        }
        free(v);
    } else {
        (void)ddp_store_set(a->store, rank_key(key, &m, a->rank), "", 0);
    }
    ls_log_restore(before);
}
