/* Tests lab 23's top-k: how many elements are sent, which ones, the error that is kept, and the sums of all ranks'
 * lists. */
#include <stdio.h>

#include "ddp_procs/topk.h"
#include "labs/23-compression/run.h"

static const int worlds[] = {1, 2, 3, 5, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

#define A_BUCKET_EACH 1e-6 /* MiB */
#define A_FEW 0.001
#define ONE_BUCKET 25.0

static struct job job_of(int ranks, int steps) {
    return (struct job){.model = SMALL,
                        .fraction = 0.05,
                        .bucket_cap_mb = ONE_BUCKET,
                        .ranks = ranks,
                        .steps = steps,
                        .looks = true,
                        .optimizer = ls_optimizer_defaults(LS_SGD)};
}

static void begin(probe *p, const struct job *job, const char *more) {
    static const char *const kinds[] = {"random gradients", "gradients of few sizes", "with NaN, infinities and zeros",
                                        "small gradients that keep their sign"};
    const char *buckets = job->bucket_cap_mb == A_BUCKET_EACH ? "a bucket for each parameter"
                          : job->bucket_cap_mb == A_FEW       ? "buckets of 1 KiB"
                                                              : "one bucket";
    probe_case(p, "%s, %g %%, %s, W = %d, %s%s%s", job->model, 100 * job->fraction, buckets, job->ranks,
               job->trains ? "trained" : kinds[job->kind], job->forgets ? ", no feedback" : "", more);
}

/* --- how many ------------------------------------------------------------------------------------------------------- */

static void count(probe *p) {
    static const double fractions[] = {0.1, 0.01, 0.25, 0.29, 0.5, 1, 1e-9, 0.07, 0.999};
    for (size_t n = 1; n <= 101; n += n < 12 ? 1 : 11)
        for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++) {
            probe_case(p, "%zu elements, a fraction of %g", n, fractions[f]);
            probe_see_count(p, "elements that are sent", ddp_topk_count(n, fractions[f]));
        }
    for (int i = 0; i < 30; i++) {
        size_t n = 1 + (size_t)probe_draw(p, 1 << 20), percent = 1 + (size_t)probe_draw(p, 100);
        probe_case(p, "%zu elements, a fraction of %g", n, (double)percent / 100);
        probe_see_count(p, "elements that are sent", ddp_topk_count(n, (double)percent / 100));
    }
    probe_case(p, "more elements than a float counts, a fraction of 0.3");
    probe_see_count(p, "elements that are sent", ddp_topk_count(400000010, 0.3));
}

/* --- elements sent, kept, summed ------------------------------------------------------------------------------------- */

static void see_lists(probe *p, const struct job *job, int s) {
    for (int r = 0; r < job->ranks; r++) {
        const struct step *step = &job->rank[r].step[s];
        probe_see_wholes(p, probe_name(p, "step %d, indices of all ranks' lists, on rank %d", s, r), step->indices,
                         step->entries);
        probe_see_floats(p, probe_name(p, "step %d, their values", s), step->values, step->entries);
    }
}

static void see_errors(probe *p, const struct job *job, int s) {
    for (int r = 0; r < job->ranks; r++) {
        const struct step *step = &job->rank[r].step[s];
        if (step->errors)
            probe_see_floats(p, probe_name(p, "step %d, what rank %d has not sent", s, r), step->errors, step->floats);
    }
}

static void see_sums(probe *p, const struct job *job, int s) {
    for (int r = 0; r < job->ranks; r++) {
        const struct step *step = &job->rank[r].step[s];
        probe_see_floats(p, probe_name(p, "step %d, gradients on rank %d behind the reduction", s, r), step->sums,
                         step->floats);
    }
}

static void entries_case(probe *p, int ranks, gradients kind, double fraction) {
    struct job job = job_of(ranks, 1);
    job.kind = kind;
    job.fraction = fraction;
    begin(p, &job, "");
    run_all(p, &job);
    see_lists(p, &job, 0);
    run_release(&job);
}

static void entries(probe *p) {
    for (int w = 0; w < WORLDS; w++)
        for (gradients kind = RANDOM; kind <= SPECIAL; kind++) {
            entries_case(p, worlds[w], kind, 0.05);
            entries_case(p, worlds[w], kind, 0.3);
        }
}

static void errors_case(probe *p, int ranks, gradients kind, bool forgets) {
    struct job job = job_of(ranks, MOST_STEPS);
    job.kind = kind;
    job.forgets = forgets;
    begin(p, &job, "");
    run_all(p, &job);
    for (int s = 0; s < job.steps; s++) {
        see_lists(p, &job, s);
        see_errors(p, &job, s);
    }
    run_release(&job);
}

static void errors(probe *p) {
    for (int w = 0; w < WORLDS; w++)
        for (gradients kind = RANDOM; kind <= STEADY; kind++) {
            if (kind == SPECIAL) continue; /* correct forms may differ in which NaN the sum of two is */
            errors_case(p, worlds[w], kind, false);
            if (kind == RANDOM) errors_case(p, worlds[w], kind, true);
        }
}

static void sums_case(probe *p, int ranks, gradients kind, bool forgets, double fraction) {
    struct job job = job_of(ranks, 3);
    job.kind = kind;
    job.forgets = forgets;
    job.fraction = fraction;
    begin(p, &job, "");
    run_all(p, &job);
    for (int s = 0; s < job.steps; s++) see_sums(p, &job, s);
    run_release(&job);
}

static void sums(probe *p) {
    for (int w = 0; w < WORLDS; w++) {
        sums_case(p, worlds[w], RANDOM, false, 0.05);
        sums_case(p, worlds[w], TIED, false, 0.3);
        sums_case(p, worlds[w], SPECIAL, true, 0.05);
        sums_case(p, worlds[w], RANDOM, false, 1);
    }
}

/* --- around them ---------------------------------------------------------------------------------------------------- */

static void buckets_case(probe *p, int ranks, double cap, bool no_overlap) {
    struct job job = job_of(ranks, 4);
    job.bucket_cap_mb = cap;
    job.no_overlap = no_overlap;
    begin(p, &job, no_overlap ? ", reduced behind backward" : "");
    run_all(p, &job);
    for (int s = 0; s < job.steps; s++) {
        see_errors(p, &job, s);
        see_sums(p, &job, s);
    }
    run_release(&job);
}

static void buckets(probe *p) {
    for (int w = 0; w < WORLDS; w++) {
        buckets_case(p, worlds[w], A_FEW, false);
        buckets_case(p, worlds[w], A_BUCKET_EACH, false);
        buckets_case(p, worlds[w], A_BUCKET_EACH, true);
    }
}

static void counts_case(probe *p, int ranks, double cap) {
    struct job job = job_of(ranks, 3);
    job.bucket_cap_mb = cap;
    begin(p, &job, "");
    run_all(p, &job);
    for (int r = 0; r < job.ranks; r++)
        for (int s = 0; s < job.steps; s++) {
            const struct step *step = &job.rank[r].step[s];
            probe_see_count(p, probe_name(p, "step %d, bytes that rank %d sends", s, r), step->sent_bytes);
            probe_see_count(p, probe_name(p, "step %d, operations of rank %d's group", s, r), step->operations);
            probe_see_count(p, probe_name(p, "step %d, bytes in rank %d's phase gather", s, r), step->gathered_bytes);
            probe_see(p, probe_name(p, "step %d, rank %d's phase at the last all-gather", s, r), "%s", step->phase);
            probe_see(p, probe_name(p, "step %d, the stream of rank %d's all-gathers", s, r), "%s", step->stream);
        }
    run_release(&job);
}

static void counts(probe *p) {
    for (int w = 1; w < WORLDS; w++) {
        counts_case(p, worlds[w], ONE_BUCKET);
        counts_case(p, worlds[w], A_BUCKET_EACH);
    }
}

static void shuffled(probe *p) {
    enum { SEEDS = 12 };
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int seed = 0; seed < SEEDS; seed++) {
            char streams[40], more[60];
            struct job job = job_of(ranks, 4);
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            snprintf(more, sizeof more, ", streams %s", streams);
            job.streams = streams;
            job.looks = false;
            job.bucket_cap_mb = A_FEW;
            begin(p, &job, more);
            run_all(p, &job);
            see_errors(p, &job, job.steps - 1);
            see_sums(p, &job, job.steps - 1);
            run_release(&job);
        }
}

static void train(probe *p, struct job job, const char *more) {
    job.trains = true;
    begin(p, &job, more);
    run_all(p, &job);
    for (int r = 0; r < job.ranks; r++) {
        probe_see_floats(p, probe_name(p, "losses of rank %d", r), job.rank[r].losses, (size_t)job.steps);
        if (job.precision == LS_FP16)
            probe_see_floats(p, probe_name(p, "loss scales of rank %d", r), job.rank[r].scales, (size_t)job.steps);
        for (int s = 0; s < job.steps; s++)
            probe_see_floats(p, probe_name(p, "weights of rank %d after step %d", r, s), job.rank[r].weights[s],
                             job.rank[r].step[job.steps - 1].floats);
    }
    run_release(&job);
}

static void trained(probe *p) {
    for (int w = 0; w < WORLDS; w++) {
        struct job job = job_of(worlds[w], 4);
        job.optimizer.learning_rate = 0.05;
        job.optimizer.momentum = 0.9;
        train(p, job, ", SGD with momentum");
        job.optimizer = ls_optimizer_defaults(LS_ADAM);
        job.optimizer.clip_norm = 0.05;
        job.micro_batches = 2;
        train(p, job, ", Adam, gradients clipped, two micro-batches");
    }
    struct job job = job_of(3, MOST_STEPS);
    job.forgets = true;
    job.precision = LS_FP16;
    job.optimizer = ls_optimizer_defaults(LS_ADAM);
    job.optimizer.scaler = (ls_grad_scaler_options){
        .enabled = true, .init_scale = 0x1p24, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2};
    train(p, job, ", fp16, whose first steps are left out");
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"count", count},       {"entries", entries}, {"errors", errors},
                                         {"sums", sums},         {"buckets", buckets}, {"counts", counts},
                                         {"shuffled", shuffled}, {"trained", trained}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
