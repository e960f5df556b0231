#include "labs/25-missing/waiting.h"

#include <stdio.h>

#include "labs/25-missing/job.h"

/* --- messages ------------------------------------------------------------------------------------------------------- */

/* The place at which a rank waits if its neighbour has skipped its messages, or waits for one that has: the first
 * message in that direction; without one, the all_reduce after the messages. */
static int place_beside(const job *j, int rank, int odd, int step) {
    int peer = j->program & (CHAIN | BACK) ? (rank < odd ? rank + 1 : rank - 1) : rank ^ 1;
    bool waits = rank != odd && (j->program & (CHAIN | BACK) || peer == odd);
    int place =
        waits ? job_message(j, rank, peer, job_collective(j, rank, 0, (uint64_t)(step - 1) * JOB_STEP + 1)) : -1;
    return place >= 0 ? place : job_collective(j, rank, 0, (uint64_t)(step - 1) * JOB_STEP + 2);
}

/* The odd rank skips its messages of a step and waits in the all_reduce after them; the others wait for it, or for each
 * other. */
static void branch_case(probe *p, int ranks, int odd, int program, int step) {
    job j;
    job_open(&j, p, ranks, program);
    probe_case(p, "%d ranks, messages %s%s%s, rank %d skips its own in step %d", ranks, program & CHAIN ? "forth" : "",
               program & BACK ? " and back" : "", program & EXCHANGE ? " and both ways at once" : "", odd, step);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, r == odd ? SKIPS_MESSAGES : STRAIGHT, step, step);
        job_wait(&j, r, place_beside(&j, r, odd, step), (int)probe_draw(p, 3));
    }
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

/* The last message of the odd rank has another count than its peer's; or only that rank has not arrived. */
static void length_case(probe *p, int ranks, int odd, int program) {
    enum { STEP = 3 };
    job j;
    if (program == CHAIN && odd == 0) odd = 1; /* the receiver */
    if (program == BACK && odd == ranks - 1) odd = 0;
    job_open(&j, p, ranks, program);
    probe_case(p, "%d ranks, messages %s%s%s, rank %d %s in step %d", ranks, program & CHAIN ? "forth" : "",
               program & BACK ? " and back" : "", program & EXCHANGE ? " and both ways at once" : "", odd,
               job_way_names[SHORTENS], STEP);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, r == odd ? SHORTENS : STRAIGHT, STEP, STEP);
        job_end(&j, r, job_collective(&j, r, 0, (STEP - 1) * JOB_STEP + 2));
    }
    job_see(&j, 0);
    job_close(&j);
}

/* Each rank waits for the next one, and the last for a missing rank: the end of the chain must be found. */
static void chain_case(probe *p, int ranks, bool back) {
    job j;
    job_open(&j, p, ranks, back ? BACK : CHAIN);
    probe_case(p, "%d ranks that wait for messages from each other, of which %s has stopped", ranks,
               back ? "the last" : "the first");
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 2);
        int last = back ? ranks - 1 : 0, peer = back ? r + 1 : r - 1;
        if (r == last)
            job_end(&j, r, job_message(&j, r, back ? r - 1 : r + 1, job_collective(&j, r, 0, JOB_STEP + 1)));
        else
            job_wait(&j, r, job_message(&j, r, peer, job_collective(&j, r, 0, JOB_STEP + 1)), 1);
    }
    job_see(&j, 0);
    job_close(&j);
}

void waiting_messages(probe *p) {
    static const int programs[] = {CHAIN, BACK, CHAIN | BACK, EXCHANGE, CHAIN | EXCHANGE, CHAIN | BACK | EXCHANGE};
    for (int ranks = 2; ranks <= 6; ranks += 2)
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
            for (int odd = 0; odd < ranks; odd++) {
                branch_case(p, ranks, odd, programs[i], 2);
                if (odd % 2 == 0) branch_case(p, ranks, odd, programs[i], 17);
                length_case(p, ranks, odd, programs[i]);
            }
    for (int ranks = 2; ranks <= 6; ranks++) {
        chain_case(p, ranks, false);
        chain_case(p, ranks, true);
    }
}

/* --- missing ranks -------------------------------------------------------------------------------------------------- */

static void missing_case(probe *p, int ranks, unsigned absent, int ahead, int step) {
    job j;
    char names[JOB_MOST_RANKS * 3] = "";
    job_open(&j, p, ranks, 0);
    for (int r = 0, length = 0; r < ranks; r++)
        if (absent >> r & 1)
            length += snprintf(names + length, sizeof names - (size_t)length, "%s%d", length ? ", " : "", r);
    probe_case(p, "%d ranks in step %d, not come: %s, others up to %d operations ahead", ranks, step,
               names[0] ? names : "none", ahead);
    for (int r = 0; r < ranks; r++) job_run(&j, r, STRAIGHT, 1, step + 12);
    job_meet_at(&j, job_bucket_1(step), absent, ahead);
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

/* Rank 1 has stopped in an operation that rank 0 has left: only the failed wait shows that it is late. */
static void late_case(probe *p, int ranks) {
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, of which rank 1 has stopped in the middle of an operation", ranks);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 3);
        job_wait(&j, r, job_collective(&j, r, 0, r == 0 ? 7 : 6), 1);
    }
    j.record->ranks[1].late = true;
    job_see(&j, 0);
    job_close(&j);
}

/* Ranks wait in two consecutive operations: which ranks have not reached the later one? */
static void two_places_case(probe *p, int ranks, int odd) {
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, rank %d has not come to #7, others wait in #7 and #8", ranks, odd);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 4);
        if (r == odd)
            job_end(&j, r, job_collective(&j, r, 0, 7));
        else
            job_wait(&j, r, job_collective(&j, r, 0, 7 + (uint64_t)(r % 2)), 3);
    }
    job_see(&j, 0);
    job_close(&j);
}

/* The pair's second rank does not arrive; ranks of other pairs do not take part. */
static void missing_in_pair(probe *p, int ranks, int odd) {
    job j;
    job_open(&j, p, ranks, PAIRS);
    probe_case(p, "%d ranks and groups of two, rank %d has not come to what its pair gathers", ranks, odd);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 3);
        int place = job_collective(&j, r, 1 + r / 2, 3);
        if (r == odd)
            job_end(&j, r, place);
        else
            job_wait(&j, r, place, 1);
    }
    job_see(&j, 1 + odd / 2);
    job_close(&j);
}

/* Rank 0 waits for a message that has been sent, so that it is correct; the others wait for rank `odd`. */
static void behind_message_case(probe *p, int ranks, int odd) {
    job j;
    job_open(&j, p, ranks, CHAIN);
    probe_case(p, "%d ranks, rank %d has not come, and the first waits to send what is being received", ranks, odd);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 3);
        int place = job_collective(&j, r, 0, 6);
        if (r == odd)
            job_end(&j, r, place);
        else
            job_wait(&j, r, r == 0 ? job_message(&j, r, 1, job_collective(&j, r, 0, JOB_STEP + 1)) : place, 2);
    }
    job_see(&j, 0);
    job_close(&j);
}

/* The first of two ranks waits in its second message, whose peer has called it; no rank waits in a collective. */
static void only_messages_case(probe *p) {
    job j;
    job_open(&j, p, 2, CHAIN | EXCHANGE);
    probe_case(p, "2 ranks, rank 0 waits in a message that rank 1 has received, and no rank in a collective");
    for (int r = 0; r < 2; r++) {
        job_run(&j, r, STRAIGHT, 1, 1);
        job_end(&j, r, job_collective(&j, r, 0, 2));
    }
    job_wait(&j, 0, j.record->ranks[0].count - 1, 0);
    job_see(&j, 0);
    job_close(&j);
}

void waiting_missing(probe *p) {
    only_messages_case(p);
    for (int ranks = 2; ranks <= 6; ranks++) {
        missing_case(p, ranks, 0, 0, 2);
        for (int odd = 0; odd < ranks; odd++) {
            missing_case(p, ranks, 1u << odd, 0, 1 + odd);
            missing_case(p, ranks, 1u << odd, 5, 20);
        }
        if (ranks > 2) missing_case(p, ranks, 1u | 1u << (ranks - 1), 3, 2);
        late_case(p, ranks);
        two_places_case(p, ranks, ranks - 1);
        if (ranks > 2) behind_message_case(p, ranks, ranks - 1);
        if (ranks % 2 == 0)
            for (int odd = 0; odd < ranks; odd++) missing_in_pair(p, ranks, odd);
    }
}

/* --- unknown operations --------------------------------------------------------------------------------------------- */

/* Others have run so far ahead of their streams that their rings begin after the place of those that have not arrived;
 * `near` of them are less far ahead. */
static void unknown_case(probe *p, int ranks, unsigned absent, int near, bool in_it) {
    enum { STEP = 5 };
    job j;
    char names[JOB_MOST_RANKS * 3] = "";
    job_open(&j, p, ranks, 0);
    for (int r = 0, length = 0; r < ranks; r++)
        if (absent >> r & 1)
            length += snprintf(names + length, sizeof names - (size_t)length, "%s%d", length ? ", " : "", r);
    probe_case(p, "%d ranks, %s: %s, of the others %d hold its number", ranks, in_it ? "in it" : "not come", names,
               near);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, STEP + 30);
        int place = job_collective(&j, r, 0, job_bucket_1(STEP));
        bool odd = absent >> r & 1;
        int ahead = odd ? 0 : near-- > 0 ? 10 + (int)probe_draw(p, 40) : 64 + (int)probe_draw(p, 50);
        if (odd && !in_it)
            job_end(&j, r, place);
        else
            job_wait(&j, r, place, ahead);
    }
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

/* The oldest operation in the other's ring is the one that the missing rank has not reached, or the one after it. */
static void border_case(probe *p, int ranks, int ahead) {
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, rank 1 has not come to #19, the others have called #%d", ranks, 19 + ahead);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 35);
        int place = job_collective(&j, r, 0, 19);
        if (r == 1)
            job_end(&j, r, place);
        else
            job_wait(&j, r, place, ahead);
    }
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

/* Others are in #18, which their rings no longer hold; rank 1 is in #19, or has not reached it. Their rings begin with
 * #19, or after it. */
static void one_ahead_case(probe *p, int ranks, int ahead, bool in_it) {
    job j;
    job_open(&j, p, ranks, 0);
    probe_case(p, "%d ranks, rank 1 %s #19, the others are in #18 and have called #%d", ranks,
               in_it ? "is in" : "has not come to", 18 + ahead);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 35);
        int place = job_collective(&j, r, 0, r == 1 ? 19 : 18);
        if (r == 1 && !in_it)
            job_end(&j, r, place);
        else
            job_wait(&j, r, place, r == 1 ? 0 : ahead);
    }
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

/* The pair's first rank is far ahead of its second; ranks of other pairs do not take part. */
static void unknown_in_pair(probe *p, int ranks, int odd) {
    job j;
    job_open(&j, p, ranks, PAIRS);
    probe_case(p, "%d ranks and groups of two, rank %d has not come to what its pair gathers, its peer is far ahead",
               ranks, odd);
    for (int r = 0; r < ranks; r++) {
        job_run(&j, r, STRAIGHT, 1, 100);
        int place = job_collective(&j, r, 1 + r / 2, 3);
        if (r == odd)
            job_end(&j, r, place);
        else
            job_wait(&j, r, place, 400);
    }
    job_wrap(&j);
    job_see(&j, 1 + odd / 2);
    job_close(&j);
}

/* Rank 1 waits for a message, and rank 0's ring begins after it, or, if rank 0 is less far ahead, still holds it. */
static void lost_message_case(probe *p, int ahead) {
    enum { STEP = 2 };
    job j;
    job_open(&j, p, 2, CHAIN);
    probe_case(p, "2 ranks, rank 1 waits for message %d, which rank 0 has sent, and enqueued %d operations behind it",
               STEP, ahead);
    for (int r = 0; r < 2; r++) {
        job_run(&j, r, STRAIGHT, 1, 40);
        int place = job_message(&j, r, 1 - r, job_collective(&j, r, 0, JOB_STEP + 1));
        job_wait(&j, r, place, r == 0 ? ahead : 0);
    }
    job_wrap(&j);
    job_see(&j, 0);
    job_close(&j);
}

void waiting_unknown(probe *p) {
    for (int ranks = 2; ranks <= 6; ranks++) {
        for (int odd = 0; odd < ranks; odd++) {
            unknown_case(p, ranks, 1u << odd, 0, false);
            unknown_case(p, ranks, 1u << odd, 0, true);
            if (ranks > 2) unknown_case(p, ranks, 1u << odd, 1, false);
        }
        if (ranks > 2) unknown_case(p, ranks, 3, 0, false);
        if (ranks > 3) unknown_case(p, ranks, 1u | 1u << (ranks - 1), 1, true);
        for (int ahead = 61; ahead <= 66; ahead++) {
            border_case(p, ranks, ahead);
            one_ahead_case(p, ranks, ahead, true);
            one_ahead_case(p, ranks, ahead, false);
        }
        if (ranks % 2 == 0) unknown_in_pair(p, ranks, (int)probe_draw(p, (uint64_t)ranks));
    }
    for (int ahead = 60; ahead <= 130; ahead += ahead < 68 ? 1 : 20) lost_message_case(p, ahead);
}
