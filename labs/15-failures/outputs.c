#include "labs/15-failures/outputs.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Each rank's line ends with its reason. */
struct scene {
    probe *p;
    char *text;
    size_t length;
    int ranks, victim, first; /* the rank that fails; the rank that reports it first */
    int order[64];            /* the ranks in the order of their lines, without the victim and the first */
    int others, timeout_s;
    char operation[128];
};

static void put(struct scene *s, const char *format, ...) LS_PRINTF(2, 3);
static void put(struct scene *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int nbytes = vsnprintf(s->text + s->length, OUTPUT_CAPACITY - s->length, format, arguments);
    va_end(arguments);
    s->length += (size_t)nbytes;
}

static int draw(struct scene *s, int below) { return (int)probe_draw(s->p, (uint64_t)below); }

static void draw_operation(struct scene *s) {
    static const char *const names[] = {"all_reduce (sum) of %d fp32 elements (operation %d, %d bytes)",
                                        "all_gather of %d int64 elements (operation %d, %d bytes)"};
    int elements = 2 + draw(s, 1000000), which = draw(s, 2);
    /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): one of the two above */
    snprintf(s->operation, sizeof s->operation, names[which], elements, 1 + draw(s, 100000),
             elements * (which ? 8 : 4));
}

static void begin(struct scene *s) {
    s->victim = draw(s, s->ranks);
    do s->first = draw(s, s->ranks);
    while (s->first == s->victim);
    s->others = 0;
    for (int r = 0; r < s->ranks; r++)
        if (r != s->victim && r != s->first) s->order[s->others++] = r;
    for (int i = s->others - 1; i > 0; i--) {
        int j = draw(s, i + 1), kept = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = kept;
    }
    s->timeout_s = 1 + draw(s, 90);
    draw_operation(s);
}

static int pid(struct scene *s) { return 100 + draw(s, 4000000); }

/* The survivors: the first of them gives the reason, and the others report that it has given up, and why. */
static void put_survivors(struct scene *s, const char *reason) {
    put(s, "ddp_train[rank %d]: error: %s: %s\n", s->first, s->operation, reason);
    for (int i = 0; i < s->others; i++)
        put(s, "ddp_train[rank %d]: error: %s: rank %d has given up: %s: %s\n", s->order[i], s->operation, s->first,
            s->operation, reason);
}

static void put_died(struct scene *s) {
    char reason[64];
    snprintf(reason, sizeof reason, "rank %d died", s->victim);
    put_survivors(s, reason);
    put(s, "ddprun: error: rank %d (pid %d) was ended by signal 9 (Killed)\nexit status 1\n", s->victim, pid(s));
}

/* A death that makes others late: a rank that waits for one that waits for the dead one reports that, before or after
 * the ranks that have noticed the death. */
static void put_died_and_late(struct scene *s) {
    char late[192];
    int told = draw(s, 2), by = s->others > 0 ? s->order[draw(s, s->others)] : s->first;
    snprintf(late, sizeof late, "ddp_train[rank %d]: error: %s: rank %d did not arrive within %d s\n", by, s->operation,
             s->first, s->timeout_s);
    if (told == 0) put(s, "%s", late);
    draw_operation(s);
    put(s, "ddp_train[rank %d]: error: %s: rank %d died\n", s->first, s->operation, s->victim);
    if (told == 1) put(s, "%s", late);
    put(s, "ddprun: error: rank %d (pid %d) was ended by signal 9 (Killed)\nexit status 1\n", s->victim, pid(s));
}

static void put_late(struct scene *s, bool awakes) {
    char reason[64], before[sizeof s->operation];
    snprintf(reason, sizeof reason, "rank %d did not arrive within %d s", s->victim, s->timeout_s);
    put_survivors(s, reason);
    memcpy(before, s->operation, sizeof before);
    if (awakes) {
        draw_operation(s); /* its operation differs from the others' */
        put(s, "ddp_train[rank %d]: error: %s: rank %d has given up: %s: %s\n", s->victim, s->operation, s->first,
            before, reason);
    }
    /* the launcher names the rank that ended first, which need not be the one that reported first */
    int named = draw(s, s->others + 1) - 1;
    put(s, "ddprun: error: rank %d (pid %d) exited with status 3: %s: ", named < 0 ? s->first : s->order[named], pid(s),
        before);
    if (named >= 0) put(s, "rank %d has given up: %s: ", s->first, before);
    put(s, "%s\nexit status 3\n", reason);
}

static void put_no_room(struct scene *s) {
    char reason[256], told[80], who[32] = "rank 0";
    int in_use = draw(s, 100000), room = in_use + draw(s, 1000);
    snprintf(
        reason, sizeof reason,
        "device %d is out of memory: %d bytes asked for parameters (parameter), %d of %d bytes in use; use a smaller "
        "model; or raise --device-memory",
        s->victim, 10000 + draw(s, 1000000), in_use, room);
    if (s->victim > 0)
        snprintf(who, sizeof who, "rank %d of %d", s->victim, s->ranks); /* rank 0 reports its own difference */
    snprintf(told, sizeof told, "%s failed before the first step; see its error", who);
    put(s, "ddp_train[rank %d]: error: %s\n", s->victim, reason);
    for (int i = -1; i < s->others; i++)
        put(s, "ddp_train[rank %d]: error: %s\n", i < 0 ? s->first : s->order[i], told);
    bool own = draw(s, 2) > 0;
    put(s, "ddprun: error: rank %d (pid %d) exited with status 1: %s\nexit status 1\n", own ? s->victim : s->first,
        pid(s), own ? reason : told);
}

static void put_other_settings(struct scene *s) {
    static const char *const options[] = {"--lr", "--batch-size", "--seed", "--epochs", "--accumulate"};
    char reason[160];
    if (s->victim == 0) s->victim = s->first, s->first = 0; /* the others are compared with rank 0 */
    int has = 1 + draw(s, 1000);
    snprintf(reason, sizeof reason, "%s: rank %d has %d, but rank 0 has %d; expected the same on all ranks",
             options[draw(s, 5)], s->victim, has, has + 1 + draw(s, 1000));
    put(s, "ddp_train[rank %d]: error: %s\n", s->first, reason);
    for (int i = 0; i < s->others; i++) put(s, "ddp_train[rank %d]: error: %s\n", s->order[i], reason);
    put(s, "ddp_train[rank %d]: error: %s\n", s->victim, reason);
    put(s, "ddprun: error: rank %d (pid %d) exited with status 2: %s\nexit status 2\n", s->first, pid(s), reason);
}

static void put_taken(struct scene *s) {
    put(s,
        "ddp_train[rank %d]: error: cannot serve the store at 127.0.0.%d:%d: the port is in use; end the program that "
        "uses it, or choose another port (--master-port, MASTER_PORT)\nexit status 1\n",
        0, 1 + draw(s, 200), 1024 + draw(s, 60000));
}

static void put_not_finite(struct scene *s) {
    char reason[256];
    int step = draw(s, 1000);
    snprintf(
        reason, sizeof reason,
        "step %d (epoch %d): the loss is nan; the first value that is not finite is in the output of fc2 on rank %d; "
        "lower --lr, or look at the data",
        step, step / 100, s->first);
    put_survivors(s, reason);
    put(s, "ddprun: error: rank %d (pid %d) exited with status 1: %s\nexit status 1\n", s->first, pid(s), reason);
}

/* Ranks whose samples end at different steps: none of the six failures, though a rank is named. */
static void put_ran_out(struct scene *s) {
    int step = draw(s, 1000);
    for (int i = -1; i < s->others; i++)
        put(s,
            "ddp_train[rank %d]: error: rank %d has run out of samples at step %d: this rank, which has more, stops "
            "too\n",
            i < 0 ? s->first : s->order[i], s->victim, step);
    put(s, "exit status 1\n");
}

void output_make(probe *p, char text[OUTPUT_CAPACITY], int kind, int ranks) {
    struct scene s = {.p = p, .text = text, .ranks = ranks};
    text[0] = 0;
    begin(&s);
    switch (kind) {
    case 0: put_died(&s); break;
    case 1: put_late(&s, false); break;
    case 2: put_late(&s, true); break;
    case 3: put_no_room(&s); break;
    case 4: put_other_settings(&s); break;
    case 5: put_taken(&s); break;
    case 6: put_not_finite(&s); break;
    case 7: put_died_and_late(&s); break;
    case 8: put_ran_out(&s); break;
    default: put(&s, "exit status %d\n", 1 + draw(&s, 3)); break; /* no output at all */
    }
}
