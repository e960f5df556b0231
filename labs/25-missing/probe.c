/* Tests lab 25's comparison on synthetic flight records: jobs in which ranks deviate or wait in different operations,
 * and whose rings have wrapped. */
#include <stdio.h>

#include "labs/25-missing/job.h"
#include "labs/25-missing/waiting.h"

/* --- collectives ---------------------------------------------------------------------------------------------------- */

static void numbers_case(probe *p, int ranks, int odd, enum way way, int program) {
    enum { STEP = 2 };
    job j;
    job_open(&j, p, ranks, program);
    probe_case(p, "%d ranks, and rank %d %s in step %d%s", ranks, odd, job_way_names[way], STEP,
               program & CHAIN ? ", with messages between" : "");
    for (int r = 0; r < ranks; r++) job_run(&j, r, r == odd ? way : STRAIGHT, STEP, STEP + 1);
    job_meet_at(&j, job_bucket_1(STEP), 0, 3);
    job_see(&j, 0);
    job_close(&j);
}

static void numbers(probe *p) {
    for (int ranks = 2; ranks <= 5; ranks++)
        for (enum way way = SKIPS; way <= LABELS; way++)
            for (int odd = ranks == 2 ? 1 : 0; odd<ranks; odd += ranks> 3 ? 2 : 1) numbers_case(p, ranks, odd, way, 0);
    for (enum way way = SKIPS; way <= LABELS; way++) numbers_case(p, 3, 1, way, CHAIN | EXCHANGE);
}

static void majority_case(probe *p, int ranks, const char *ways) {
    static const enum way by_letter[] = {STRAIGHT, COUNTS, LABELS, REDUCES};
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, of which those with the same letter run the same: %s", ranks, ways);
    for (int r = 0; r < ranks; r++) job_run(&j, r, by_letter[ways[r] - 'a'], 2, 3);
    job_meet_at(&j, job_bucket_1(2), 0, 2);
    job_see(&j, 0);
    job_close(&j);
}

static void majority(probe *p) {
    static const char *const chosen[] = {"ab",   "ba",    "abb",   "bab",   "abc",   "aabb",  "bbaa", "abab",
                                         "abcc", "bccab", "cabba", "abcdd", "aabbc", "cbbaa", "abcd", "dcba"};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        int ranks = 0;
        while (chosen[i][ranks]) ranks++;
        majority_case(p, ranks, chosen[i]);
    }
    for (int again = 0; again < 24; again++) {
        char ways[JOB_MOST_RANKS + 1] = "";
        int ranks = 4 + (int)probe_draw(p, JOB_MOST_RANKS - 3);
        for (int r = 0; r < ranks; r++) ways[r] = (char)('a' + (int)probe_draw(p, 4));
        ways[0] = 'a';
        ways[1] = 'b';
        majority_case(p, ranks, ways);
    }
}

/* Ranks at other numbers; the rings of those ahead no longer hold operations that others still hold. The odd rank skips
 * a bucket, so all its later numbers differ, too. */
static void rings_case(probe *p, int ranks, int odd, int since, int ahead) {
    enum { STEPS = 100 }; /* more numbers than 8 bits count */
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, rank %d skips bucket 1 %d steps before the end, ranks are up to %d operations ahead",
               ranks, odd, since, ahead);
    for (int r = 0; r < ranks; r++) job_run(&j, r, r == odd ? SKIPS : STRAIGHT, STEPS - 20 - since, STEPS + 20);
    job_meet_at(&j, (STEPS - 20) * JOB_STEP, 0, ahead);
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

/* The first two ranks differ before the oldest operation that all others still hold. */
static void few_hold_it(probe *p, int ranks) {
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, of which only the first two hold the number at which they differ", ranks);
    for (int r = 0; r < ranks; r++) job_run(&j, r, r == 1 ? COUNTS : r == 2 ? LABELS : STRAIGHT, 3, 30);
    for (int r = 0; r < ranks; r++)
        job_wait(&j, r, job_collective(&j, r, 0, r < 2 ? job_bucket_1(3) : job_bucket_1(25)), (int)probe_draw(p, 4));
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

static void rings(probe *p) {
    for (int ranks = 3; ranks <= 6; ranks++) {
        few_hold_it(p, ranks);
        for (int since = 1; since <= 18; since += 5) {
            rings_case(p, ranks, (int)probe_draw(p, (uint64_t)ranks), since, 0);
            rings_case(p, ranks, (int)probe_draw(p, (uint64_t)ranks), since, 40);
        }
    }
}

/* Pairs of ranks have groups of their own, with numbers of their own. */
static void groups_case(probe *p, int ranks, int odd) {
    job j;
    job_open(&j, p, ranks, PAIRS);
    probe_case(p, "%d ranks and groups of two, rank %d gathers another count in its pair", ranks, odd);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 3);
        int place = job_collective(&j, r, 1 + r / 2, 2);
        if (r == odd) j.record->ranks[r].operations[place].count++;
        job_wait(&j, r, place, (int)probe_draw(p, 3));
    }
    job_see(&j, 1 + odd / 2);
    job_close(&j);
}

static void whole_group_case(probe *p, int ranks, int odd, enum way way) {
    job j;
    job_open(&j, p, ranks, PAIRS);
    probe_case(p, "%d ranks and groups of two, rank %d %s", ranks, odd, job_way_names[way]);
    for (int r = 0; r < ranks; r++) job_run(&j, r, r == odd ? way : STRAIGHT, 2, 3);
    job_meet_at(&j, job_bucket_1(2), 0, 2);
    job_see(&j, 0);
    job_close(&j);
}

static void groups(probe *p) {
    for (int ranks = 2; ranks <= 8; ranks += 2)
        for (int odd = 0; odd < ranks; odd++) {
            groups_case(p, ranks, odd);
            whole_group_case(p, ranks, odd, odd % 2 ? SKIPS : COUNTS);
        }
}

/* --- random whole records ------------------------------------------------------------------------------------------- */

static void draw_job(job *j, probe *p, int ranks) {
    int steps = 2 + (int)probe_draw(p, 50), odd_step = 1 + (int)probe_draw(p, (uint64_t)steps);
    int odd = (int)probe_draw(p, (uint64_t)ranks);
    enum way way = (enum way)probe_draw(p, WAYS);
    for (int r = 0; r < ranks; r++) job_run(j, r, r == odd ? way : STRAIGHT, odd_step, steps);
    for (int r = 0; r < ranks; r++) {
        ls_flight_rank *rank = &j->record->ranks[r];
        int place = rank->count - 1 - (int)probe_draw(p, rank->count < 160 ? (uint64_t)rank->count : 160);
        int stands = (int)probe_draw(p, 4);
        if (stands == 0)
            job_end(j, r, place);
        else
            job_wait(j, r, place, stands == 1 ? 64 + (int)probe_draw(p, 90) : (int)probe_draw(p, 20));
        rank->late = probe_draw(p, 8) == 0;
        rank->presence = probe_draw(p, 10) == 0 ? LS_FLIGHT_DIED : LS_FLIGHT_PRESENT;
    }
    j->record->group = (int)probe_draw(p, (uint64_t)j->record->group_count);
}

static void see_table(const job *j) {
    char text[LS_FLIGHT_TABLE];
    size_t end = 0;
    ls_flight_table(text, j->record);
    while (text[end] && text[end] != '\n') end++;
    text[end] = '\0';
    probe_see(j->p, "the first line of build/flight", "%s", text);
}

static void drawn(probe *p) {
    for (int again = 0; again < 240; again++) {
        job j;
        int ranks = 2 + again / 40, program = (int)probe_draw(p, 16);
        job_open(&j, p, ranks, program);
        probe_case(p, "%d ranks, drawn, number %d", ranks, again);
        draw_job(&j, p, ranks);
        job_wrap(&j);
        for (int g = 0; g < j.record->group_count; g++) job_see(&j, g);
        see_table(&j);
        job_close(&j);
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"numbers", numbers},
                                         {"majority", majority},
                                         {"rings", rings},
                                         {"groups", groups},
                                         {"messages", waiting_messages},
                                         {"missing", waiting_missing},
                                         {"unknown", waiting_unknown},
                                         {"drawn", drawn},
                                         {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
