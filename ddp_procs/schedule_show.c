#include "ddp_procs/schedule_show.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/schedule_simulated.h"

enum { FORWARD = 1, BACKWARD = 2, COLUMNS = 100 }; /* a column is the time of a forward pass */

static const char *plural(int count) { return count == 1 ? "" : "s"; }

/* Why the lists do not run to the end: for a deadlock, what each stage waits for. */
static void print_outcome(const struct ddp_instruction *lists, int count, int stages, const ddp_simulated *simulated,
                          FILE *file) {
    static const char *const outcomes[] = {[DDP_RUNS_THROUGH] = "every stage ends",
                                           [DDP_DEADLOCK] = "deadlock:",
                                           [DDP_WRONG_MESSAGE] = "a stage receives another message than it waits for",
                                           [DDP_NO_NEIGHBOUR] = "a stage sends to or receives from no neighbour"};
    const char *between = "";
    fputs(outcomes[simulated->outcome], file);
    for (int s = 0; s < stages && simulated->outcome == DDP_DEADLOCK; s++) {
        const struct ddp_simulated_stage *stage = &simulated->stages[s];
        const struct ddp_instruction *x = &lists[(size_t)s * count + stage->done];
        if (stage->done == count) continue;
        fprintf(file, "%s stage %d waits to %s %c%d %s stage %d", between, s,
                stage->doing == DDP_SENDS ? "send" : "receive", x->backward ? 'B' : 'F', x->micro_batch,
                stage->doing == DDP_SENDS ? "to" : "from", stage->doing == DDP_SENDS ? x->to : x->from);
        between = ",";
    }
    fputs("\n", file);
}

static void print_answers(const ddp_schedule *schedule, const struct ddp_instruction *lists,
                          const ddp_simulated *simulated, const ddp_simulated *blocking, FILE *file) {
    int p = schedule->stages, m = schedule->micro_batches;
    if (simulated->outcome == DDP_RUNS_THROUGH)
        fprintf(
            file,
            "bubble: stages are idle for %.1f %% of a step (simulated: equal stages, a backward pass takes two forward "
            "passes); (P-1)/(M+P-1) = %.1f %%\n",
            100 * simulated->idle_share, 100 * ddp_schedule_bubble(schedule));
    else
        print_outcome(lists, 2 * m, p, simulated, file);
    fprintf(file, "in flight at most, stage by stage:");
    for (int s = 0; s < p; s++) fprintf(file, " %d", simulated->stages[s].stored);
    fprintf(file, " (%s, %d stage%s, %d micro-batch%s)\n", ddp_schedule_names[schedule->kind], p, plural(p), m,
            m == 1 ? "" : "es");
    fputs("sends that block until they are received (simulated): ", file);
    print_outcome(lists, 2 * m, p, blocking, file);
}

static void print_lists(const ddp_schedule *schedule, const struct ddp_instruction *lists, FILE *file) {
    const int count = 2 * schedule->micro_batches;
    fputs("\nF: forward pass of a micro-batch, B: backward pass\n", file);
    for (int s = 0; s < schedule->stages; s++, lists += count) {
        fprintf(file, "stage %d:", s);
        for (int i = 0; i < count; i++) fprintf(file, " %c%d", lists[i].backward ? 'B' : 'F', lists[i].micro_batch);
        fputs("\n", file);
    }
}

/* A forward pass is the last digit of its micro-batch, a backward pass the same after a b. */
static void draw(char row[COLUMNS + 1], const struct ddp_instruction *list, const double *begins, int count) {
    memset(row, '.', COLUMNS);
    row[COLUMNS] = '\0';
    for (int i = 0; i < count && begins[i] >= 0 && begins[i] < COLUMNS; i++) {
        char digit = (char)('0' + list[i].micro_batch % 10);
        int at = (int)begins[i];
        row[at] = list[i].backward ? 'b' : digit;
        if (list[i].backward && at + 1 < COLUMNS) row[at + 1] = digit;
    }
}

static void print_picture(const ddp_schedule *schedule, const struct ddp_instruction *lists,
                          const ddp_simulated *simulated, FILE *file) {
    const int count = 2 * schedule->micro_batches;
    char row[COLUMNS + 1];
    bool is_cut = simulated->makespan > COLUMNS;
    int width = is_cut ? COLUMNS : (int)simulated->makespan;
    fputs("\ntime goes right; 4: forward pass of micro-batch 4", file);
    if (schedule->micro_batches > 10) fputs(" (or 14, 24, ...)", file);
    fputs(", b4: backward pass, .: idle", file);
    if (is_cut) fprintf(file, "; the first %d of %.0f columns", COLUMNS, simulated->makespan);
    fputs("\n", file);
    for (int s = 0; s < schedule->stages; s++) {
        draw(row, lists + (size_t)s * count, simulated->begins + (size_t)s * count, count);
        fprintf(file, "stage %d: %s%.*s\n", s, s < 10 && schedule->stages > 10 ? " " : "", width, row);
    }
}

static ls_status simulate_and_print(const ddp_schedule *schedule, const struct ddp_instruction *lists, FILE *file) {
    double forward[DDP_MOST_STAGES], backward[DDP_MOST_STAGES];
    struct ddp_simulation how = {schedule, forward, backward, DDP_ANY_NUMBER};
    ddp_simulated simulated, blocking = {0};
    for (int s = 0; s < schedule->stages; s++) {
        forward[s] = FORWARD;
        backward[s] = BACKWARD;
    }
    ls_status status = ddp_simulate(&simulated, lists, &how);
    how.link_holds = 0;
    if (status == LS_OK) status = ddp_simulate(&blocking, lists, &how);
    if (status == LS_OK) {
        print_answers(schedule, lists, &simulated, &blocking, file);
        print_lists(schedule, lists, file);
        print_picture(schedule, lists, &simulated, file);
    }
    ddp_simulated_free(&simulated);
    ddp_simulated_free(&blocking);
    return status;
}

ls_status ddp_schedule_show(const ddp_schedule *schedule, FILE *file) {
    const size_t count = 2 * (size_t)schedule->micro_batches;
    struct ddp_instruction *lists = calloc((size_t)schedule->stages * count, sizeof *lists);
    if (!lists) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the lists of %d stages", schedule->stages);
    for (int s = 0; s < schedule->stages; s++) ddp_schedule_list(schedule, s, lists + (size_t)s * count);
    ls_status status = simulate_and_print(schedule, lists, file);
    free(lists);
    return status;
}
