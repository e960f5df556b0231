/* Tests lab 24's labels: of each operation on each label, on which axes, of networks that ranks share, with and without
 * bugs, and of a norm; and the findings in the eight programs. */
#include <stdio.h>
#include <string.h>

#include "common/optim/value_checks.h"
#include "labs/24-silent/found.h"
#include "labs/24-silent/run.h"

static void see_labels(probe *p, const char *what, struct ls_labels labels) {
    probe_see(p, what, "%s, %s, %s", label_names[labels.on[0]], label_names[labels.on[1]], label_names[labels.on[2]]);
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

static void see_operation(probe *p, struct one_operation *job) {
    operation_run(p, job);
    for (int r = 0; r<job->ranks; r += job->ranks> 4 ? 3 : 1) {
        bool taken = job->seen[r].status == LS_OK;
        probe_see(p, probe_name(p, "what rank %d says of it", r), "%s", taken ? "nothing" : job->seen[r].message);
        if (job->seen[r].has_after)
            see_labels(p, probe_name(p, "rank %d's output on the axes tensor, data, pipeline", r), job->seen[r].after);
    }
}

static struct ls_labels all_axes(ls_value value) { return (struct ls_labels){{value, value, value}}; }

static void operations(probe *p) {
    for (enum operation o = SUM; o < OPERATIONS; o++)
        for (int label = 0; label <= LS_SPLIT; label++) {
            struct one_operation job = {.sizes = {2, 1, 1}, .operation = o, .before = all_axes((ls_value)label)};
            probe_case(p, "%s over the tensor axis of a value that is %s", operation_names[o], label_names[label]);
            see_operation(p, &job);
        }
}

static const int meshes[][LS_MESH_AXES] = {{2, 2, 1}, {1, 2, 2}, {2, 1, 2}, {1, 3, 2}, {3, 2, 1}, {2, 2, 2}, {2, 3, 2}};
static const char *const group_names[] = {"its tensor axis", "its data axis", "its pipeline axis", "the whole job"};

static void axes_case(probe *p, const int sizes[LS_MESH_AXES], int group, enum operation o, struct ls_labels before) {
    struct one_operation job = {.group = group, .operation = o, .before = before};
    memcpy(job.sizes, sizes, sizeof job.sizes);
    probe_case(p, "a mesh of %d x %d x %d ranks (tensor, data, pipeline): %s over %s, of a value that is %s, %s, %s",
               sizes[0], sizes[1], sizes[2], operation_names[o], group_names[group], label_names[before.on[0]],
               label_names[before.on[1]], label_names[before.on[2]]);
    see_operation(p, &job);
}

/* Groups that span one axis, two or all; labels that are valid on each of them, or invalid on one. */
static void axes(probe *p) {
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int group = 0; group <= JOB; group++) {
            axes_case(p, meshes[m], group, SUM, all_axes(LS_PARTIAL));
            for (int a = 0; a < LS_MESH_AXES; a++) {
                struct ls_labels labels = all_axes(LS_PARTIAL);
                labels.on[a] = (ls_value)(probe_draw(p, 2) ? LS_SPLIT : LS_REPLICATED);
                axes_case(p, meshes[m], group, SUM, labels);
            }
        }
}

/* --- networks ---------------------------------------------------------------------------------------------------------- */

struct network_case {
    const char *model;
    int ranks;
    bool sequence;
};

static const struct network_case networks[] = {
    {"mlp:12,8,8,4", 2, false},    {"convnet", 2, false},       {"gpt:1,2,8,4,11", 2, false},
    {"gpt:2,4,16,8,11", 4, false}, {"gpt:1,2,8,4,11", 2, true}, {"gpt:2,4,16,8,11", 4, true},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static const char *rows_text(const struct network_case *n) { return n->sequence ? ", rows of their own" : ""; }

static void see_outputs(probe *p, struct rules *rules, int layer, const char *which) {
    char message[MESSAGE_NBYTES];
    for (int x = 0; x <= LS_SPLIT; x++) {
        ls_value out = rules_output(rules, layer, (ls_value)x, message);
        const char *what = probe_name(p, "the output of %s%s, if its input is %s", rules_layer_name(rules, layer),
                                      which, label_names[x]);
        probe_see(p, what, "%s", message[0] ? message : label_names[out]);
    }
}

/* Each matrix multiply, and again with a whole weight. */
static void products(probe *p) {
    for (int i = 0; i < NETWORKS; i++) {
        const struct network_case *n = &networks[i];
        struct rules *rules = rules_open(p, n->model, n->ranks, n->sequence);
        probe_case(p, "%s on %d ranks%s, forward of a product", n->model, n->ranks, rows_text(n));
        for (int l = 0; l < rules_layer_count(rules); l++) {
            if (!rules_is_product(rules, l)) continue;
            see_outputs(p, rules, l, "");
            rules_make_whole(rules, l);
            see_outputs(p, rules, l, " with a whole weight");
        }
        rules_close(rules);
    }
}

static void see_gradients(probe *p, struct rules *rules, int layer) {
    for (int k = 0; k < rules_parameter_count(rules, layer); k++)
        for (int way = 0; way < 256; way++) {
            ls_value x = (ls_value)(way & 3), dy = (ls_value)(way >> 2 & 3), dx = (ls_value)(way >> 4 & 3),
                     sums = (ls_value)(way >> 6);
            bool drawn = probe_draw(p, 10) == 0; /* a random subset, since there are many */
            if (!drawn) continue;
            int found = rules_gradient(rules, layer, k, x, dy, dx, sums);
            probe_see(p,
                      probe_name(p, "%s, parameter %d: label for x %s, dy %s, dx %s, row sums %s",
                                 rules_layer_name(rules, layer), k, label_names[x], label_names[dy], label_names[dx],
                                 label_names[sums]),
                      "%s", found < 0 ? "none" : label_names[found]);
        }
}

static void gradients(probe *p) {
    for (int i = 0; i < NETWORKS; i++) {
        const struct network_case *n = &networks[i];
        struct rules *rules = rules_open(p, n->model, n->ranks, n->sequence);
        probe_case(p, "%s on %d ranks%s, backward of a layer", n->model, n->ranks, rows_text(n));
        for (int l = 0; l < rules_layer_count(rules); l++) see_gradients(p, rules, l);
        rules_close(rules);
    }
}

/* Whole steps of correct networks, and of networks with a bug at each possible place alone. */
static void steps(probe *p) {
    for (enum bug bug = NO_BUG; bug < BUGS; bug++)
        for (int i = 0; i < NETWORKS; i++)
            for (int nth = 0, places = 1; nth < places && nth < 8; nth++) {
                const struct network_case *n = &networks[i];
                struct shared_training t = {
                    .model = n->model, .ranks = n->ranks, .sequence = n->sequence, .bug = bug, .nth = nth};
                probe_case(p, "%s on %d ranks%s, a step, %s, place %d", n->model, n->ranks, rows_text(n),
                           bug_names[bug], nth);
                shared_training_run(p, &t);
                places = t.places;
                if (places > 0 || bug == NO_BUG)
                    probe_see(p, "what --debug-values says", "%s", t.status == LS_OK ? "nothing" : t.message);
            }
}

/* --- a norm ---------------------------------------------------------------------------------------------------------------- */

static void see_norm(probe *p, const struct ls_labels *of, int count) {
    static const int sizes[LS_MESH_AXES] = {2, 2, 2};
    ls_comm *const none[LS_MESH_AXES] = {NULL};
    struct ls_tensor tensors[3] = {{.name = "first"}, {.name = "second"}, {.name = "third"}};
    float gradients[3];
    double square_sum = 0;
    char message[MESSAGE_NBYTES] = "";
    probe_must(p, "a table", ls_values_begin(sizes, none));
    ls_values_enter();
    ls_values_at("update", -1);
    for (int i = 0; i < count; i++)
        if (of[i].on[0] <= LS_SPLIT)
            ls_values_set(&gradients[i], sizeof *gradients, of[i], true, "the gradient of %s", tensors[i].name);
    ls_label_square_sum(&square_sum);
    for (int i = 0; i < count; i++) ls_label_square_sum_of(&square_sum, &tensors[i]);
    see_labels(p, "the square sum on the axes tensor, data, pipeline", *ls_values_find(&square_sum));
    ls_log_sink before = ls_log_capture(message, sizeof message);
    ls_status status = ls_check_square_sum(&square_sum);
    ls_log_restore(before);
    probe_see(p, "the message without any operation", "%s", status == LS_OK ? "nothing" : message);
    (void)ls_values_leave(NULL, LS_ERR_INVALID);
    ls_values_end();
}

static void norm(probe *p) {
    for (int tensor = 0; tensor <= LS_SPLIT; tensor++)
        for (int data = 0; data <= LS_SPLIT; data++) {
            struct ls_labels labels = ls_labels_of((ls_value)tensor, (ls_value)data);
            probe_case(p, "a gradient that is %s on the tensor axis and %s on the data axis", label_names[tensor],
                       label_names[data]);
            see_norm(p, &labels, 1);
        }
    for (int again = 0; again < 40; again++) {
        struct ls_labels labels[3];
        probe_case(p, "three gradients, drawn, number %d", again);
        for (int i = 0; i < 3; i++) {
            labels[i] = ls_labels_of((ls_value)probe_draw(p, 5), (ls_value)probe_draw(p, 4));
            if (labels[i].on[0] > LS_SPLIT) continue; /* not a label */
            labels[i].on[LS_MESH_PIPELINE] = (ls_value)probe_draw(p, 4);
        }
        see_norm(p, labels, 3);
    }
}

/* --- the eight programs ---------------------------------------------------------------------------------------------------- */

/* As one number, so that a wrong finding does not reveal the right one. */
static void see_found(probe *p, int program) {
    struct finding f = found(program);
    uint64_t number = (uint64_t)program;
    const int fields[] = {(int)f.tensor, (int)f.axis, (int)f.state, (int)f.place};
    for (int i = 0; i < 4; i++) number = (number + (uint64_t)fields[i] + 1) * 0x9E3779B97F4A7C15u;
    probe_case(p, "program %d", program);
    probe_see(p, "tensor, axis, state and place, as one number", "%04x", (unsigned)(number >> 48));
}

#define FOUND(n)                                                                                                       \
    static void found_##n(probe *p) { see_found(p, n); }
FOUND(1)
FOUND(2)
FOUND(3)
FOUND(4)
FOUND(5)
FOUND(6)
FOUND(7)
FOUND(8)

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"operations", operations}, {"axes", axes},       {"products", products},
                                         {"gradients", gradients},   {"norm", norm},       {"steps", steps},
                                         {"found-1", found_1},       {"found-2", found_2}, {"found-3", found_3},
                                         {"found-4", found_4},       {"found-5", found_5}, {"found-6", found_6},
                                         {"found-7", found_7},       {"found-8", found_8}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
