/* Tests lab 17's segments: the bytes of their arena, passes on one device, batch norm over several ranks. */
#include <stdio.h>

#include "common/nn/model.h"
#include "labs/17-recompute/run.h"

/* --- memory --------------------------------------------------------------------------------------------------------- */

/* Counts allocations on meta devices. */
static void see_bytes(probe *p, const ls_network *network, ls_dtype precision, int every, size_t max_batch) {
    ls_device *device;
    ls_model *model;
    ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    probe_must(p, "a device", ls_device_open(&device, &options));
    probe_must(p, "a model", ls_model_create_segments_of(&model, device, network, max_batch, precision, every, false));
    ls_memory_report memory;
    ls_device_memory(device, &memory);
    probe_see_count(p, "bytes of activations", memory.peak_bytes[LS_MEMORY_ACTIVATION]);
    probe_see_count(p, "bytes of products' scratch memory", memory.peak_bytes[LS_MEMORY_WORKSPACE]);
    ls_model_destroy(model);
    ls_device_close(device);
}

static void bytes(probe *p) {
    static const size_t batches[] = {1, 3, 16, 100};
    for (int net = 0; net < NETS; net++) {
        ls_network *network = net_create(p, (enum net)net);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (int every = 1; every <= net_blocks((enum net)net); every++) {
                ls_dtype precision = (ls_dtype)((b + (size_t)every) % 3);
                probe_case(p, "%s, %d blocks, %d a segment; room for %zu samples in %s", net_name((enum net)net),
                           net_blocks((enum net)net), every, batches[b], ls_dtype_name(precision));
                see_bytes(p, network, precision, every, batches[b]);
            }
        ls_network_destroy(network);
    }
    ls_network *deep;
    probe_must(p, "a network", ls_network_create(&deep, "deep"));
    for (int every = 1; every <= 17; every += 2) { /* more bytes than 32 bits count */
        probe_case(p, "deep, 17 blocks, %d a segment; room for 2000000 samples", every);
        see_bytes(p, deep, LS_FP32, every, 2000000);
    }
    ls_network_destroy(deep);
}

/* --- passes on one device ------------------------------------------------------------------------------------------- */

static struct run run_of(enum net net, int every, ls_dtype precision) {
    return (struct run){.net = net,
                        .every = every,
                        .ranks = 1,
                        .steps = 3,
                        .max_batch = 5,
                        .rows = {{2}, {5}, {4}},
                        .precision = precision};
}

static void begin(probe *p, const struct run *run, const char *more) {
    probe_case(p, "%s, %d blocks, %d a segment, %s%s", net_name(run->net), net_blocks(run->net), run->every,
               ls_dtype_name(run->precision), more);
}

static void run_well(probe *p, struct run *run) {
    run_all(p, run);
    for (int r = 0; r < run->ranks; r++) probe_must(p, probe_name(p, "rank %d", r), run->rank[r].status);
}

/* Calls `see` for both networks and any number of blocks in a segment, in each precision. */
static void each_run(probe *p, const char *more, void (*change)(struct run *run),
                     void (*see)(probe *p, struct run *run)) {
    for (int net = 0; net < NETS; net++)
        for (int every = 1; every <= net_blocks((enum net)net); every++)
            for (int precision = LS_FP32; precision <= LS_BF16; precision++) {
                struct run run = run_of((enum net)net, every, (ls_dtype)precision);
                if (change) change(&run);
                begin(p, &run, more);
                see(p, &run);
                run_release(&run);
            }
}

/* Evaluates before the running statistics change: another check tests their updates. */
static void evaluate_and_forward(struct run *run) {
    run->forward_only = true;
    run->evaluates[0] = true;
}

static void see_outputs(probe *p, struct run *run) {
    run_well(p, run);
    for (int s = 0; s < run->steps; s++) {
        const char *name = run->evaluates[s] ? "evaluation" : "training";
        size_t rows = run->rows[s][0];
        probe_see(p, probe_name(p, "what forward %d (%s) returns", s, name), "%s", run->rank[0].output[s]);
        if (run->rank[0].y[s])
            probe_see_floats(p, probe_name(p, "outputs of %zu samples, forward %d (%s)", rows, s, name),
                             run->rank[0].y[s], rows * run->rank[0].output_count);
    }
}

static void one_sample_too_many(struct run *run) {
    run->forward_only = true;
    run->steps = 1;
    run->rows[0][0] = run->max_batch + 1;
}

static void see_refused(probe *p, struct run *run) {
    run_all(p, run);
    probe_see(p, "what forward returns", "%s", run->rank[0].output[0]);
    probe_see(p, "what the device says", "%s", ls_status_text(run->rank[0].status));
}

static void forward(probe *p) {
    each_run(p, "", evaluate_and_forward, see_outputs);
    each_run(p, "; a sample more than there is room for", one_sample_too_many, see_refused);
}

static void keep_inputs(struct run *run) { run->forward_only = run->keeps = true; }

static void see_kept(probe *p, struct run *run) {
    run_well(p, run);
    for (int s = 0; s < run->steps; s++) {
        const struct seen *seen = &run->rank[0];
        probe_see_count(p, probe_name(p, "segments run in forward %d", s), (uint64_t)seen->kept_count[s]);
        for (int i = 0; i < seen->kept_count[s]; i++)
            if (seen->kept[s][i].values)
                probe_see_floats(p, probe_name(p, "input of segment %d, read after forward %d", i, s),
                                 seen->kept[s][i].values, seen->kept[s][i].count);
    }
}

static void kept(probe *p) { each_run(p, "", keep_inputs, see_kept); }

static void listen(struct run *run) { run->listens = true; }

static void see_order(probe *p, struct run *run) {
    run_well(p, run);
    for (int s = 0; s < run->steps; s++)
        probe_see(p, probe_name(p, "blocks run in step %d (forward | backward; ' goes back)", s), "%s",
                  run->rank[0].order[s]);
}

static void order(probe *p) { each_run(p, "", listen, see_order); }

static void see_gradients(probe *p, struct run *run) {
    run_well(p, run);
    for (int s = 0; s < run->steps; s++) {
        struct seen *seen = &run->rank[0];
        probe_see_wholes(p, probe_name(p, "parameters in the order of their gradients, step %d", s), seen->ready[s],
                         seen->ready_count[s]);
        probe_see_floats(p, probe_name(p, "gradients after step %d, of %zu samples", s, run->rows[s][0]),
                         seen->gradients[s], seen->gradient_count);
    }
}

static void gradients(probe *p) { each_run(p, "", NULL, see_gradients); }

/* Three micro-batches, then a step of one. */
static void add_up(struct run *run) {
    run->steps = MOST_STEPS;
    run->rows[MOST_STEPS - 1][0] = 3;
    run->accumulates[1] = run->accumulates[2] = true;
}

static void accumulate(probe *p) { each_run(p, "; micro-batches 1 and 2 add to 0", add_up, see_gradients); }

static void evaluate_last(struct run *run) { run->evaluates[2] = true; }

static void see_statistics(probe *p, struct run *run) {
    run_well(p, run);
    for (int s = 0; s < run->steps; s++) {
        struct seen *seen = &run->rank[0];
        const char *name = run->evaluates[s] ? "evaluation" : "step";
        probe_see_wholes(p, probe_name(p, "batches tracked after forward of %s %d", name, s), seen->tracked_before[s],
                         seen->norm_count);
        probe_see_floats(p, probe_name(p, "running statistics after forward of %s %d", name, s), seen->before[s],
                         seen->buffer_count);
        probe_see_wholes(p, probe_name(p, "batches tracked after %s %d", name, s), seen->tracked[s], seen->norm_count);
        probe_see_floats(p, probe_name(p, "running statistics after %s %d", name, s), seen->buffers[s],
                         seen->buffer_count);
    }
}

static void statistics(probe *p) {
    for (int every = 1; every <= net_blocks(NET_NORMS); every++) {
        struct run run = run_of(NET_NORMS, every, LS_FP32);
        evaluate_last(&run);
        begin(p, &run, "");
        see_statistics(p, &run);
        run_release(&run);
    }
}

/* --- streams and ranks ---------------------------------------------------------------------------------------------- */

static void shuffled(probe *p) {
    enum { SEEDS = 3 };
    for (int net = 0; net < NETS; net++)
        for (int every = 1; every <= 3; every++)
            for (int seed = 0; seed < SEEDS; seed++) {
                char streams[40], more[60];
                snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
                snprintf(more, sizeof more, ", streams %s", streams);
                struct run run = run_of((enum net)net, every, LS_FP32);
                run.streams = streams;
                begin(p, &run, more);
                see_gradients(p, &run);
                run_release(&run);
            }
}

static void see_ranks(probe *p, struct run *run) {
    run_all(p, run);
    for (int r = 0; r < run->ranks; r++)
        probe_see(p, probe_name(p, "what rank %d ends with", r), "%s", ls_status_text(run->rank[r].status));
    for (int r = 0; r < run->ranks; r++) {
        struct seen *seen = &run->rank[r];
        for (int s = 0; seen->status == LS_OK && s < run->steps; s++) {
            probe_see_count(p, probe_name(p, "collectives of rank %d so far, step %d", r, s), seen->collectives[s]);
            probe_see_floats(p,
                             probe_name(p, "gradients of rank %d after step %d, of %zu samples", r, s, run->rows[s][r]),
                             seen->gradients[s], seen->gradient_count);
            probe_see_floats(p, probe_name(p, "running statistics of rank %d after step %d", r, s), seen->buffers[s],
                             seen->buffer_count);
        }
    }
}

/* --sync-bn; a rank may have no samples. */
static void ranks(probe *p) {
    static const struct {
        int ranks;
        size_t rows[3][MOST_RANKS];
    } rows[] = {{1, {{3}, {0}, {2}}},
                {2, {{2, 1}, {3, 3}, {1, 4}}},
                {2, {{2, 0}, {0, 3}, {1, 1}}},
                {3, {{1, 2, 3}, {0, 2, 0}, {2, 2, 2}}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int every = 1; every <= net_blocks(NET_NORMS); every++) {
            struct run run = run_of(NET_NORMS, every, LS_FP32);
            char more[80];
            run.ranks = rows[i].ranks;
            run.syncs = true;
            for (int s = 0; s < 3; s++)
                for (int r = 0; r < run.ranks; r++) run.rows[s][r] = rows[i].rows[s][r];
            snprintf(more, sizeof more, "; batch norm over %d rank%s", run.ranks, run.ranks > 1 ? "s" : "");
            begin(p, &run, more);
            see_ranks(p, &run);
            run_release(&run);
        }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"bytes", bytes},
                                         {"forward", forward},
                                         {"kept", kept},
                                         {"order", order},
                                         {"gradients", gradients},
                                         {"accumulate", accumulate},
                                         {"statistics", statistics},
                                         {"shuffled", shuffled},
                                         {"ranks", ranks},
                                         {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
