/* Tests lab 22's ranks, which share layers: the part of each, the results of f and g for a value and its gradient,
 * which gradients are partial, and the loss from parts of the classes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nn/cut.h"
#include "labs/22-tensor/run.h"

/* --- parts ---------------------------------------------------------------------------------------------------------- */

static void classes(probe *p) {
    static const size_t vocabularies[] = {12, 21, 27, 5, 3, 2};
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++) {
            probe_case(p, "%zu classes, T = %d", vocabularies[v], ranks);
            for (int r = 0; r < ranks; r++) {
                struct ls_class_part part = classes_run(p, vocabularies[v], r, ranks);
                probe_see_count(p, probe_name(p, "rank %d's room", r), part.room);
                probe_see_count(p, probe_name(p, "its first class"), part.first);
                probe_see_count(p, probe_name(p, "how many it has"), part.count);
                probe_see_count(p, probe_name(p, "how many there are"), part.whole);
            }
        }
}

struct cut_case {
    const char *what;
    int axis, ndim;
    size_t shape[4], ranges;
};

static const struct cut_case cuts_seen[] = {
    {"a bias of 12", 0, 1, {12}, 1},
    {"12 rows of 5", 0, 2, {12, 5}, 1},
    {"12 columns in 5 rows", 1, 2, {5, 12}, 1},
    {"query, key and value, 12 rows of 2 each", 0, 2, {36, 2}, 3},
    {"their biases", 0, 1, {36}, 3},
    {"a table of 7 rows of 3", 0, 2, {7, 3}, 1},
    {"a table of 5 rows of 2", 0, 2, {5, 2}, 1},
    {"a convolution of 12 inputs, 3 outputs, 2 x 2", 1, 4, {3, 12, 2, 2}, 1},
};

/* Each rank takes its part from the whole; the parts are concatenated again. */
static void see_cut(probe *p, const struct cut_case *c, int ranks) {
    size_t share = c->ranges * (size_t)ranks, count = 1;
    struct ls_cut cut = {.axis = c->axis, .ranges = c->ranges};
    cut.held = c->ranges * ((c->shape[c->axis] + share - 1) / share);
    cut.whole.ndim = c->ndim;
    for (int d = 0; d < c->ndim; d++) count *= cut.whole.shape[d] = c->shape[d];
    cut.whole.count = count;
    size_t held = count / c->shape[c->axis] * cut.held;
    float *whole = wholes_drawn(p, count), *together = floats_new(p, count), *part = floats_new(p, held);
    probe_case(p, "%s, T = %d", c->what, ranks);
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < held; i++) part[i] = 99;
        ls_cut_take(&cut, r, part, whole);
        probe_see_floats(p, probe_name(p, "rank %d's part", r), part, held);
        ls_cut_put(&cut, r, part, together);
    }
    probe_see_floats(p, "all parts concatenated", together, count);
    free(whole);
    free(together);
    free(part);
}

static void cuts(probe *p) {
    for (size_t i = 0; i < sizeof cuts_seen / sizeof *cuts_seen; i++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++) see_cut(p, &cuts_seen[i], ranks);
}

/* --- between layers -------------------------------------------------------------------------------------------------- */

static struct one_layer layer_of(const struct ls_layer_kind *kind, int ranks, size_t batch, int rows, int channels) {
    struct ls_shape in = ls_features(channels);
    in.rows = rows;
    return (struct one_layer){.layer = {.kind = kind, .in = in}, .ranks = ranks, .batch = batch};
}

static void begin_layer(probe *p, const struct one_layer *job, const char *more) {
    probe_case(p, "T = %d, %zu sample%s, %d row%s of %d going in%s%s%s", job->ranks, job->batch,
               job->batch > 1 ? "s" : "", job->layer.in.rows, job->layer.in.rows > 1 ? "s" : "", job->layer.in.channels,
               job->layer.units > 0 ? ", a bias" : "", job->layer.relu ? " and a ReLU" : "", more);
}

static void see_passes(probe *p, const struct one_layer *job) {
    for (int r = 0; r < job->ranks; r++) {
        const struct one_rank *rank = &job->rank[r];
        probe_see_floats(p, probe_name(p, "what comes out on rank %d", r), rank->y, rank->out_count);
        probe_see_floats(p, probe_name(p, "the gradient that goes on from rank %d", r), rank->dx, rank->in_count);
    }
}

static void see_parameters(probe *p, const struct one_layer *job) {
    for (int r = 0; r < job->ranks; r++)
        for (size_t i = 0; i < job->rank[r].layer.parameter_count; i++)
            probe_see_floats(p, probe_name(p, "the gradient of parameter %zu on rank %d", i, r),
                             job->rank[r].gradients[i], job->rank[r].layer.parameters[i].count);
}

static void see_layer(probe *p, struct one_layer job, const char *more) {
    begin_layer(p, &job, more);
    one_layer_run(p, &job);
    see_passes(p, &job);
    see_parameters(p, &job);
    one_layer_release(&job);
}

static void f(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t batch = 1; batch <= 3; batch += 2)
            for (int rows = 1; rows <= 3; rows += 2) see_layer(p, layer_of(&ls_tensor_f, ranks, batch, rows, 4), "");
}

static void g_case(probe *p, struct one_layer job, bool bias, const char *more) {
    job.same_dy = true;
    if (bias) job.layer.units = job.layer.in.channels;
    see_layer(p, job, more);
}

static void g(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t batch = 1; batch <= 3; batch += 2)
            for (int rows = 1; rows <= 3; rows += 2)
                g_case(p, layer_of(&ls_tensor_g, ranks, batch, rows, 4), false, "");
}

static void bias(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int rows = 1; rows <= 3; rows += 2) {
            struct one_layer job = layer_of(&ls_tensor_g, ranks, 2, rows, 3);
            g_case(p, job, true, "");
            job.layer.relu = true;
            g_case(p, job, true, "");
            job.adds = true;
            g_case(p, job, true, ", gradients added");
        }
}

static void gather(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t batch = 1; batch <= 3; batch += 2)
            for (int rows = 1; rows <= 3; rows += 2) {
                struct one_layer job = layer_of(&ls_sequence_gather, ranks, batch, rows, 4);
                see_layer(p, job, "");
                job.wants_no_dx = true;
                see_layer(p, job, ", whose gradient is not needed");
            }
}

static void scatter(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t batch = 1; batch <= 3; batch += 2)
            for (int rows = 1; rows <= 3; rows += 2) {
                struct one_layer job = layer_of(&ls_sequence_scatter, ranks, batch, rows * ranks, 4);
                see_layer(p, job, "");
                job.layer.units = 4;
                see_layer(p, job, "");
                job.adds = true;
                see_layer(p, job, ", gradients added");
            }
}

/* --- partial gradients, and terms ------------------------------------------------------------------------------------- */

static void norms(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t batch = 1; batch <= 3; batch += 2)
            for (int adds = 0; adds <= 1; adds++) {
                struct one_layer job = layer_of(&ls_layernorm_part, ranks, batch, 2, 6);
                job.is_rounded = true;
                job.adds = adds;
                begin_layer(p, &job, adds ? ", gradients added" : "");
                one_layer_run(p, &job);
                for (int r = 0; r < ranks; r++) {
                    const struct one_rank *rank = &job.rank[r];
                    bool same = true;
                    see_close(p, probe_name(p, "dx on rank %d", r), rank->dx, rank->in_count);
                    for (int i = 0; i < 2; i++) {
                        see_close(p, probe_name(p, "%s on rank %d", i == 0 ? "dgamma" : "dbeta", r), rank->gradients[i],
                                  6);
                        same = same && memcmp(rank->gradients[i], job.rank[0].gradients[i], 6 * sizeof(float)) == 0;
                    }
                    probe_see(p, probe_name(p, "whether rank %d's bits are rank 0's", r), "%s", same ? "yes" : "no");
                }
                one_layer_release(&job);
            }
}

static void terms(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        struct one_layer job = layer_of(&ls_conv2d_part, ranks, 2, 1, 2);
        job.layer.in.height = job.layer.in.width = 5;
        job.layer.units = 3;
        job.layer.kernel = 3;
        job.layer.stride = job.layer.padding = 1;
        job.is_rounded = true;
        probe_case(p, "a convolution, T = %d, 2 samples, 2 channels of 5 x 5 on each rank", ranks);
        one_layer_run(p, &job);
        for (int r = 0; r < ranks; r++) {
            const struct one_rank *rank = &job.rank[r];
            see_close(p, probe_name(p, "rank %d's term", r), rank->y, rank->out_count);
            see_close(p, probe_name(p, "rank %d's gradient of the bias", r), rank->gradients[1], 3);
        }
        one_layer_release(&job);
    }
}

/* --- the loss ---------------------------------------------------------------------------------------------------------- */

static struct one_loss loss_of(int ranks, size_t classes_there, size_t rows, float size) {
    return (struct one_loss){.ranks = ranks, .classes = classes_there, .rows = rows, .size = size};
}

static void loss(probe *p) {
    static const size_t counts[] = {12, 7, 21, 2};
    static const float sizes[] = {1, 20, 150};
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                struct one_loss job = loss_of(ranks, counts[i], 5, sizes[s]);
                probe_case(p, "%zu classes, T = %d, 5 rows, logits up to %g", job.classes, ranks, (double)sizes[s]);
                one_loss_run(p, &job);
                for (int r = 0; r < ranks; r++) {
                    see_close(p, probe_name(p, "the loss on rank %d", r), &job.loss[r], 1);
                    for (size_t k = 0; k < job.rows * job.room; k++)
                        probe_see_near(p, probe_name(p, "dlogits of rank %d's part[%zu]", r, k), (double)job.dy[r][k],
                                       4e-6);
                }
                one_loss_release(&job);
            }
}

/* --- communication, and training ----------------------------------------------------------------------------------------- */

static void see_traffic(probe *p, struct one_layer job, const char *what) {
    static const char *const passes[] = {"forward", "back"};
    job.same_dy = true;
    probe_case(p, "%s, T = %d", what, job.ranks);
    one_layer_run(p, &job);
    for (int r = 0; r < job.ranks; r++)
        for (int i = FORWARD; i <= BACKWARD; i++) {
            probe_see_count(p, probe_name(p, "operations of rank %d, %s", r, passes[i]), job.rank[r].operations[i]);
            probe_see_count(p, probe_name(p, "bytes that rank %d sends, %s", r, passes[i]), job.rank[r].sent_bytes[i]);
        }
    one_layer_release(&job);
}

static void counts(probe *p) {
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        struct one_layer scattering = layer_of(&ls_sequence_scatter, ranks, 3, 2 * ranks, 8);
        scattering.layer.units = 8;
        see_traffic(p, layer_of(&ls_tensor_f, ranks, 3, 2, 8), "f");
        see_traffic(p, layer_of(&ls_tensor_g, ranks, 3, 2, 8), "g");
        see_traffic(p, layer_of(&ls_sequence_gather, ranks, 3, 2, 8), "gather");
        see_traffic(p, scattering, "scatter");
        see_traffic(p, layer_of(&ls_layernorm_part, ranks, 3, 2, 8), "layer norm");
        struct one_loss job = loss_of(ranks, 21, 5, 1);
        probe_case(p, "the loss of 5 rows, T = %d", ranks);
        one_loss_run(p, &job);
        probe_see_count(p, "operations of rank 0", job.operations);
        probe_see_count(p, "bytes that rank 0 sends", job.sent_bytes);
        one_loss_release(&job);
    }
}

static void train(probe *p, const char *model, int ranks, bool sequence, int micro_batches) {
    struct training t = {
        .model = model, .ranks = ranks, .sequence = sequence, .steps = 3, .batch = 2, .micro_batches = micro_batches};
    probe_case(p, "%s, T = %d%s, %d micro-batch%s", model, ranks, sequence ? ", rows of its own" : "", micro_batches,
               micro_batches > 1 ? "es" : "");
    training_run(p, &t);
    for (int s = 0; s < t.steps; s++)
        for (int r = 0; r < ranks; r++) {
            probe_see_near(p, probe_name(p, "loss of step %d on rank %d", s, r), (double)t.losses[r][s], 2e-5);
            probe_see(p, probe_name(p, "whether what is not cut is as on rank 0"), "%s",
                      t.hashes[r][s] == t.hashes[0][s] ? "yes" : "no");
        }
    for (size_t i = 0; i < t.trained_count; i += t.trained_count / 300 + 1)
        probe_see_near(p, probe_name(p, "trained weight %zu", i), (double)t.trained[i], 2e-5);
    training_release(&t);
}

static void trained(probe *p) {
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
            train(p, "mlp:10,12,6", ranks, false, micro_batches);
            train(p, "gpt:1,12,24,12,21", ranks, false, micro_batches);
            train(p, "gpt:2,12,24,12,21", ranks, true, micro_batches);
        }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"classes", classes}, {"cuts", cuts},       {"f", f},         {"g", g},         {"bias", bias},
        {"gather", gather},   {"scatter", scatter}, {"norms", norms}, {"terms", terms}, {"loss", loss},
        {"counts", counts},   {"trained", trained}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
