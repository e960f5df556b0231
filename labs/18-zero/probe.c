/* Tests lab 18's shards: which rank owns which elements, their optimizer, and sums, updates and gathers of several
 * ranks. */
#include <stdio.h>

#include "labs/18-zero/run.h"

static const int worlds[] = {1, 2, 3, 5, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

#define A_BUCKET_EACH 1e-6 /* MiB */
#define A_FEW 0.001
#define ONE_BUCKET 25.0

/* --- ownership ------------------------------------------------------------------------------------------------------ */

static void see_part(probe *p, const struct owned *owned, int rank) {
    char elements[60] = "none";
    if (owned->count > 0)
        snprintf(elements, sizeof elements, "%zu to %zu", owned->first, owned->first + owned->count - 1);
    probe_see(p, probe_name(p, "of %s, elements 0 to %zu, rank %d owns", owned->name, owned->elements - 1, rank), "%s",
              elements);
}

/* In the order of the parameters in memory, whatever the order of the ranges, and without those that are left out. */
static void see_parts(probe *p, const struct created *created, int rank) {
    const float *behind = NULL;
    for (;;) {
        const struct owned *next = NULL;
        for (size_t i = 0; i < created->ranges && i < MOST_PARAMETERS; i++) {
            const struct owned *owned = &created->range[i];
            if (owned->count > 0 && owned->data > behind && (!next || owned->data < next->data)) next = owned;
        }
        if (!next) return;
        see_part(p, next, rank);
        behind = next->data;
    }
}

static void own_case(probe *p, const char *model, double cap, const char *buckets, int ranks) {
    probe_case(p, "%s, %s, W = %d", model, buckets, ranks);
    for (int r = 0; r < ranks; r++) {
        struct created created;
        run_created(p, model, cap, ranks, r, &created);
        see_parts(p, &created, r);
    }
}

static void own(probe *p) {
    static const char *const models[] = {SMALL, "mlp:784,256,10", "convnet", "deep"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int w = 0; w < WORLDS; w++) {
            own_case(p, models[m], A_BUCKET_EACH, "a bucket for each parameter", worlds[w]);
            own_case(p, models[m], A_FEW, "buckets of 1 KiB", worlds[w]);
            own_case(p, models[m], ONE_BUCKET, "buckets of 25 MiB", worlds[w]);
        }
    own_case(p, "mlp:70000,70000,10", ONE_BUCKET, "more elements than 32 bits count", 3);
}

/* --- their optimizer ------------------------------------------------------------------------------------------------ */

static struct job job_of(int ranks, double cap) {
    return (struct job){.model = SMALL,
                        .bucket_cap_mb = cap,
                        .ranks = ranks,
                        .steps = 3,
                        .optimizer = ls_optimizer_defaults(LS_ADAM),
                        .fails_at = -1};
}

static void see_training(probe *p, struct job *job) {
    job->trains = true;
    run_all(p, job);
    for (int r = 0; r < job->ranks; r++) {
        const struct rank *rank = &job->rank[r];
        for (int s = 0; s < job->steps && job->optimizer.record_count > 0; s++)
            probe_see_floats(p, probe_name(p, "norm of all gradients in step %d, on rank %d", s, r),
                             &rank->step[s].norm, 1);
        probe_see_floats(p, probe_name(p, "losses of rank %d", r), rank->losses, (size_t)job->steps);
        for (int s = 0; s < job->steps; s++)
            if (rank->step[s].parameters)
                probe_see_floats(p, probe_name(p, "weights of rank %d after step %d", r, s), rank->step[s].parameters,
                                 rank->step[s].parameter_count);
    }
    run_release(job);
}

static void optimizer_case(probe *p, int ranks) {
    probe_case(p, "%s, buckets of 1 KiB, W = %d", SMALL, ranks);
    for (int r = 0; r < ranks; r++) {
        struct created created;
        run_created(p, SMALL, A_FEW, ranks, r, &created);
        probe_see_count(p, probe_name(p, "ranges of rank %d", r), created.ranges);
        for (size_t i = 0; i < created.ranges && i < MOST_PARAMETERS; i++)
            probe_see(p, probe_name(p, "range %zu of rank %d is of", i, r), "%s", created.range[i].name);
        probe_see(p, probe_name(p, "ranges of rank %d lie", r), "%s", created.elsewhere ? "elsewhere" : "in the model");
        probe_see(p, probe_name(p, "who adds up the norm on rank %d", r), "%s", created.norm);
    }
}

static void optimizer(probe *p) {
    for (int w = 0; w < WORLDS; w++) optimizer_case(p, worlds[w]);
}

/* --- sums, updates, gathers ----------------------------------------------------------------------------------------- */

static void begin(probe *p, const struct job *job, const char *more) {
    const char *buckets = job->bucket_cap_mb == A_BUCKET_EACH ? "a bucket for each parameter"
                          : job->bucket_cap_mb == A_FEW       ? "buckets of 1 KiB"
                                                              : "one bucket";
    probe_case(p, "%s, %s, W = %d%s", job->model, buckets, job->ranks, more);
}

static void sums_case(probe *p, int ranks, double cap, ls_dtype compress, int micro_batches, const char *streams) {
    struct job job = job_of(ranks, cap);
    job.looks = job.gradients_only = true;
    job.streams = streams;
    job.compress = compress;
    job.micro_batches = micro_batches;
    char more[80];
    snprintf(more, sizeof more, "%s%s%s", streams ? ", streams shuffled" : "",
             compress == LS_FP32 ? "" : ", gradients are sent in half precision",
             micro_batches > 1 ? ", two micro-batches" : "");
    begin(p, &job, more);
    run_all(p, &job);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < job.steps; s++) {
            const struct step *step = &job.rank[r].step[s];
            const float *slice = step->sums;
            for (size_t b = 0; b < step->bucket_count && b < MOST_BUCKETS; slice += step->slices[b++])
                probe_see_floats(p, probe_name(p, "step %d, rank %d's slice of bucket %zu", s, r, b), slice,
                                 step->slices[b]);
            probe_see(p, probe_name(p, "step %d, the stream of rank %d's sums", s, r), "%s", step->stream);
        }
    run_release(&job);
}

static void sums(probe *p) {
    for (int w = 0; w < WORLDS; w++) {
        sums_case(p, worlds[w], A_BUCKET_EACH, LS_FP32, 1, NULL);
        sums_case(p, worlds[w], ONE_BUCKET, LS_FP32, 1, NULL);
    }
    for (int ranks = 2; ranks <= 3; ranks++) {
        sums_case(p, ranks, A_FEW, LS_FP16, 1, NULL);
        sums_case(p, ranks, A_FEW, LS_BF16, 1, NULL);
        sums_case(p, ranks, A_FEW, LS_FP32, 2, NULL);
        sums_case(p, ranks, A_FEW, LS_FP32, 1, "shuffle:1");
    }
}

static void order_case(probe *p, int ranks, int fails_at) {
    struct job job = job_of(ranks, A_BUCKET_EACH);
    char more[60] = "";
    job.fails_at = fails_at;
    if (fails_at >= 0) snprintf(more, sizeof more, "; the update of step %d fails", fails_at);
    begin(p, &job, more);
    run_all(p, &job);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < job.steps; s++) {
            const struct step *step = &job.rank[r].step[s];
            probe_see(p, probe_name(p, "what rank %d enqueues in step %d", r, s), "%s", step->order);
            if (s == fails_at)
                probe_see(p, probe_name(p, "what rank %d's update returns", r), "%s",
                          step->status == LS_OK ? "success" : "a failure");
        }
    run_release(&job);
}

static void order(probe *p) {
    for (int w = 0; w < WORLDS; w++) order_case(p, worlds[w], -1);
    order_case(p, 1, 1);
    order_case(p, 2, 1);
}

static void gather(probe *p) {
    for (int w = 0; w < WORLDS; w++)
        for (int cap = 0; cap < 3; cap++) {
            static const double caps[] = {A_BUCKET_EACH, A_FEW, ONE_BUCKET};
            struct job job = job_of(worlds[w], caps[cap]);
            job.looks = true;
            begin(p, &job, "; each rank has given all parameters other values");
            run_all(p, &job);
            for (int r = 0; r < job.ranks; r++)
                for (int s = 0; s < job.steps; s++)
                    probe_see_floats(p, probe_name(p, "step %d, all parameters on rank %d", s, r),
                                     job.rank[r].step[s].parameters, job.rank[r].step[s].parameter_count);
            run_release(&job);
        }
}

static void counts(probe *p) {
    for (int w = 0; w < WORLDS; w++) {
        struct job job = job_of(worlds[w], A_FEW);
        job.looks = true;
        begin(p, &job, "");
        run_all(p, &job);
        for (int r = 0; r < job.ranks; r++)
            for (int s = 0; s < job.steps; s++) {
                const struct step *step = &job.rank[r].step[s];
                probe_see_count(p, probe_name(p, "step %d, bytes that rank %d sends", s, r), step->sent_bytes);
                probe_see_count(p, probe_name(p, "step %d, bytes in rank %d's phase reduce", s, r),
                                step->reduced_bytes);
                probe_see_count(p, probe_name(p, "step %d, bytes in rank %d's phase gather", s, r),
                                step->gathered_bytes);
                probe_see(p, probe_name(p, "step %d, rank %d's phases: at sums, update, gathers", s, r), "%s, %s, %s",
                          step->phase_of_sum, step->phase_of_update, step->phase_of_gather);
            }
        run_release(&job);
    }
}

/* --- whole steps ---------------------------------------------------------------------------------------------------- */

static void shuffled(probe *p) {
    enum { SEEDS = 12 };
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int seed = 0; seed < SEEDS; seed++) {
            char streams[40], more[60];
            struct job job = job_of(ranks, A_FEW);
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            snprintf(more, sizeof more, ", streams %s", streams);
            job.streams = streams;
            begin(p, &job, more);
            see_training(p, &job);
        }
}

static void train(probe *p, struct job job, const char *more) {
    begin(p, &job, more);
    see_training(p, &job);
}

static void trained(probe *p) {
    for (int w = 0; w < WORLDS; w++) {
        struct job job = job_of(worlds[w], A_FEW);
        job.looks = true;
        train(p, job, ", Adam");
        job.optimizer.clip_norm = 0.05;
        job.optimizer.record_count = (size_t)job.steps;
        train(p, job, ", Adam, gradients clipped");
        job.optimizer = ls_optimizer_defaults(LS_SGD);
        job.optimizer.learning_rate = 0.05;
        job.optimizer.momentum = 0.9;
        train(p, job, ", SGD with momentum");
    }
    struct job job = job_of(3, A_FEW);
    job.compares = true;
    job.precision = LS_FP16;
    job.optimizer.scaler.growth_interval = 2;
    job.optimizer.scaler.init_scale = 0x1p21;
    train(p, job, ", fp16, whose first steps are left out");
    job = job_of(3, A_FEW);
    job.micro_batches = 2;
    train(p, job, ", two micro-batches");
    job = job_of(2, ONE_BUCKET);
    job.model = "branched";
    job.find_unused = true;
    job.optimizer = ls_optimizer_defaults(LS_ADAMW); /* whose decay needs no gradient */
    train(p, job, ", some parameters are not used");
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"own", own},           {"optimizer", optimizer}, {"sums", sums},
                                         {"order", order},       {"gather", gather},       {"counts", counts},
                                         {"shuffled", shuffled}, {"trained", trained},     {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
