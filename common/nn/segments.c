/* segments — activation checkpointing: activations are dropped and recomputed, as torch.utils.checkpoint does.
 *   idea  : backward needs each layer's activations, last layer first. So it is enough to keep the inputs of
 *           segments of a few blocks each, and to run a segment forward once more when backward reaches the segment.
 *           All segments use the same memory, one after the other; the last segment's activations are still valid when
 *           backward begins
 *
 *               forward   1 | 2 | 3          | marks what is kept: the input of a segment
 *               backward          3  2 2' 1 1'      in full: 3', then 2 again and 2', then 1 again and 1'
 *
 *   cost  : of L equal blocks, `every` a segment: memory for L / every inputs and the inside of one segment, least near
 *           every = sqrt(L), where both are 2 sqrt(L) together; and a second forward of all segments except the last: a
 *           step is at most 4/3 as long. A copy of each segment's output and of its gradient
 *   order : the same operations on the same values: outputs, gradients and buffers have the bits of one segment. Batch
 *           norm's running statistics are updated in the first pass only (PyTorch: in both); the ranks of
 *           ls_segments_sync_batchnorm communicate once more, in the same order on all
 *   fails : as a frame does */
#include "common/nn/segments.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

struct segment {
    ls_frame *frame;
    size_t input_nbytes_per_sample;
    size_t input_offset; /* in the arena: its kept input, later that input's gradient; unused for the first segment */
};

struct ls_segments {
    ls_device *device;
    struct segment *list;
    int count;
    char *arena;     /* of all frames, and the kept inputs; NULL: one segment, whose frame has its own */
    void *workspace; /* of all frames */
    /* the last forward */
    const void *x;
    size_t batch;
};

/* Plans the arena: first, room for the frame of any one segment; then the inputs of all segments except the first, each
 * at the next multiple of 64 bytes. Returns the arena's bytes. */
static size_t plan_arena(struct segment *list, int count, size_t max_batch) {
    size_t nbytes = 0;
    for (int i = 0; i < count; i++)
        if (ls_frame_nbytes(list[i].frame) > nbytes) nbytes = ls_frame_nbytes(list[i].frame);
    for (int i = 1; i < count; i++) {
        list[i].input_offset = nbytes;
        nbytes += ls_frame_aligned(max_batch * list[i].input_nbytes_per_sample);
    }
    return nbytes;
}

/* The same without backward: the frames' room is followed by room for the largest input, since each is read once. */
static size_t plan_in_turn(struct segment *list, int count, size_t max_batch) {
    size_t frame = 0, input = 0;
    for (int i = 0; i < count; i++) {
        size_t nbytes = i > 0 ? ls_frame_aligned(max_batch * list[i].input_nbytes_per_sample) : 0;
        if (ls_frame_nbytes(list[i].frame) > frame) frame = ls_frame_nbytes(list[i].frame);
        if (nbytes > input) input = nbytes;
    }
    for (int i = 1; i < count; i++) list[i].input_offset = frame;
    return frame + input;
}

/* Allocates one arena and one workspace for all. */
static ls_status place(ls_segments *s, size_t max_batch, bool in_turn) {
    if (s->count == 1) return ls_frame_place(s->list[0].frame, NULL, NULL);
    size_t nbytes = in_turn ? plan_in_turn(s->list, s->count, max_batch) : plan_arena(s->list, s->count, max_batch);
    size_t workspace = 0;
    for (int i = 0; i < s->count; i++) {
        size_t needed = ls_frame_workspace_nbytes(s->list[i].frame);
        if (needed > workspace) workspace = needed;
    }
    ls_status status = ls_device_alloc(s->device, LS_MEMORY_ACTIVATION, nbytes, "activations", (void **)&s->arena);
    if (status == LS_OK && workspace > 0)
        status = ls_device_alloc(s->device, LS_MEMORY_WORKSPACE, workspace, "products", &s->workspace);
    for (int i = 0; status == LS_OK && i < s->count; i++)
        status = ls_frame_place(s->list[i].frame, s->arena, s->workspace);
    return status;
}

static ls_status make_frames(ls_segments *s, const ls_network *network, ls_dtype precision, int every,
                             size_t max_batch) {
    int blocks = ls_network_blocks(network).end;
    ls_status status = LS_OK;
    if (every == LS_FORWARD_ONLY) every = 1;
    if (every < 0) every = (int)lround(sqrt(blocks));
    if (every < 1 || every > blocks) every = blocks;
    s->list = calloc((size_t)((blocks + every - 1) / every), sizeof *s->list);
    if (!s->list) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a model's activations");
    for (int first = 0; status == LS_OK && first < blocks; first += every) {
        struct ls_blocks range = {first, first + every < blocks ? first + every : blocks};
        struct segment *segment = &s->list[s->count];
        segment->input_nbytes_per_sample =
            ls_shape_count(ls_network_block_input(network, first)) * ls_dtype_nbytes(precision);
        status = ls_frame_create(&segment->frame, s->device, network, precision, range, max_batch);
        s->count += status == LS_OK;
    }
    return status;
}

ls_status ls_segments_create(ls_segments **out, ls_device *device, const ls_network *network, ls_dtype precision,
                             int every, size_t max_batch) {
    *out = NULL;
    ls_segments *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a model's activations");
    s->device = device;
    ls_status status = make_frames(s, network, precision, every, max_batch);
    if (status == LS_OK) status = place(s, max_batch, every == LS_FORWARD_ONLY);
    if (status != LS_OK) {
        ls_segments_destroy(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void ls_segments_destroy(ls_segments *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++) ls_frame_destroy(s->list[i].frame);
    ls_device_free(s->device, s->arena);
    ls_device_free(s->device, s->workspace);
    free(s->list);
    free(s);
}

ls_status ls_segments_sync_batchnorm(ls_segments *s, ls_comm *group) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < s->count; i++) status = ls_frame_sync_batchnorm(s->list[i].frame, group);
    for (int i = 0; status != LS_OK && i < s->count; i++) (void)ls_frame_sync_batchnorm(s->list[i].frame, NULL);
    return status;
}

/* --- passes --------------------------------------------------------------------------------------------------------- */

/* The address of the kept input of segment i > 0, or of its gradient. */
static void *kept(const ls_segments *s, int i) { return s->arena + s->list[i].input_offset; }

static const void *input_of(const ls_segments *s, int i) { return i > 0 ? kept(s, i) : s->x; }

/* Copies the input of segment i > 0, or its gradient, to its place. */
static void keep(const ls_segments *s, int i, const void *value) {
    if (s->batch == 0) return;
    ls_copy(ls_device_stream(s->device, LS_STREAM_COMPUTE), kept(s, i), value,
            s->batch * s->list[i].input_nbytes_per_sample);
}

const void *ls_segments_forward(ls_segments *s, ls_parameters *parameters, const struct ls_hooks *hooks, const void *x,
                                size_t batch, ls_forward_kind kind) {
    const void *y = x;
    s->x = x;
    s->batch = batch;
    for (int i = 0; i == 0 || (y && i < s->count); i++) { /* x is NULL where there are no samples */
        if (i > 0) keep(s, i, y);
        y = ls_frame_forward(s->list[i].frame, parameters, hooks, input_of(s, i), batch, kind);
    }
    return y;
}

void ls_segments_backward(ls_segments *s, ls_parameters *parameters, const struct ls_hooks *hooks, void *dy,
                          bool accumulate) {
    for (int i = s->count - 1; i >= 0; i--) {
        ls_frame *frame = s->list[i].frame;
        if (i < s->count - 1)
            (void)ls_frame_forward(frame, parameters, hooks, input_of(s, i), s->batch, LS_RECOMPUTING);
        const void *dx = ls_frame_backward(frame, parameters, hooks, dy, accumulate);
        if (i == 0) return;
        keep(s, i, dx); /* the next segment's forward needs the frames' memory */
        dy = kept(s, i);
    }
}

int ls_segments_first_kept(const ls_segments *s) { return s->list[s->count - 1].frame->blocks.first; }

size_t ls_segments_visits(const ls_segments *s, int *visits) {
    size_t count = 0;
    for (int b = 0; b < s->list[s->count - 1].frame->blocks.end; b++) visits[count++] = b;
    for (int i = s->count - 1; i >= 0; i--) {
        struct ls_blocks blocks = s->list[i].frame->blocks;
        for (int b = blocks.first; i < s->count - 1 && b < blocks.end; b++) visits[count++] = b;
        for (int b = blocks.end; b > blocks.first; b--) visits[count++] = b - 1;
    }
    return count;
}

/* --- looking at activations ------------------------------------------------------------------------------------------ */

ls_status ls_segments_look(ls_segments *s, ls_parameters *parameters, ls_look_fn look, void *context) {
    static const struct ls_hooks nobody;
    bool done = false, alone = !s->list[0].frame->group && !s->list[0].frame->network->tensor && !parameters->is_placed;
    ls_status status = LS_OK;
    if (s->count > 1 && !alone) return look(context, s->list[s->count - 1].frame, &done);
    for (int i = 0; status == LS_OK && !done && i < s->count; i++) {
        ls_frame *frame = s->list[i].frame;
        const void *y = NULL;
        if (s->count > 1) y = ls_frame_forward(frame, parameters, &nobody, input_of(s, i), s->batch, LS_RECOMPUTING);
        status = look(context, frame, &done);
        if (y && i + 1 < s->count) keep(s, i + 1, y);
    }
    return status;
}
