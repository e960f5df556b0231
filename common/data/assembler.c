#include "common/data/assembler.h"

#include <stdlib.h>

#include "common/base/log.h"

#define LS_BUFFER_ALIGNMENT 64 /* a cache line */

bool ls_batch_slot_alloc(ls_batch_slot *slot, const ls_sample_spec *spec, size_t sample_count) {
    size_t input_nbytes, label_nbytes, target_nbytes;
    if (__builtin_mul_overflow(sample_count, ls_sample_input_count(spec) * sizeof(float), &input_nbytes)) return false;
    if (__builtin_mul_overflow(sample_count, sizeof(int64_t), &label_nbytes)) return false;
    if (__builtin_mul_overflow(sample_count, spec->target_count * sizeof(float), &target_nbytes)) return false;
    void *inputs = NULL, *labels = NULL, *targets = NULL;
    bool done = posix_memalign(&inputs, LS_BUFFER_ALIGNMENT, input_nbytes) == 0;
    if (done && spec->classes > 0) done = posix_memalign(&labels, LS_BUFFER_ALIGNMENT, label_nbytes) == 0;
    if (done && spec->target_count > 0) done = posix_memalign(&targets, LS_BUFFER_ALIGNMENT, target_nbytes) == 0;
    slot->inputs = inputs;
    slot->labels = labels;
    slot->targets = targets;
    slot->batch = (ls_batch){.inputs = inputs, .labels = labels, .targets = targets};
    return done;
}

void ls_batch_slot_free(ls_batch_slot *slot) {
    free(slot->inputs);
    free(slot->labels);
    free(slot->targets);
}

static ls_status fill_by_index(const ls_assembler *assembler, ls_batch_slot *slot) {
    struct ls_batch_indices share;
    ls_batches_get(assembler->batches, slot->batch.step, &share);
    slot->batch.count = share.local_count;
    slot->batch.global_count = share.global_count;
    return ls_dataset_read(assembler->dataset, share.indices, share.local_count, slot->inputs, slot->labels,
                           slot->targets);
}

static ls_status fill_from_stream(ls_assembler *assembler, ls_batch_slot *slot) {
    const ls_stream_share *stream = &assembler->stream;
    ls_status status = LS_OK;
    if (!assembler->cursor) {
        size_t workers = (size_t)assembler->workers;
        status = ls_cursor_create(&assembler->cursor, assembler->dataset,
                                  (size_t)stream->rank * workers + (size_t)assembler->worker,
                                  (size_t)stream->world_size * workers);
    }
    size_t count = 0;
    if (status == LS_OK) {
        status =
            ls_cursor_read(assembler->cursor, stream->local_batch, slot->inputs, slot->labels, slot->targets, &count);
    }
    slot->batch.count = count;
    slot->batch.global_count = stream->world_size == 1 ? count : 0;
    assembler->ended = status == LS_OK && (count == 0 || (stream->drop_last && count < stream->local_batch));
    return status;
}

void ls_assembler_fill(ls_assembler *assembler, ls_batch_slot *slot) {
    if (assembler->pass != slot->pass) {
        ls_assembler_release(assembler);
        assembler->pass = slot->pass;
        assembler->ended = false;
        assembler->status = LS_OK;
    }
    if (assembler->status == LS_OK && !assembler->ended) {
        ls_log_sink before = ls_log_capture(assembler->cause, sizeof assembler->cause);
        assembler->status = assembler->batches ? fill_by_index(assembler, slot) : fill_from_stream(assembler, slot);
        ls_log_restore(before);
        if (assembler->status != LS_OK || assembler->ended) ls_assembler_release(assembler);
    }
    slot->status = assembler->status;
    slot->end = assembler->ended;
}

void ls_assembler_release(ls_assembler *assembler) {
    ls_cursor_destroy(assembler->cursor);
    assembler->cursor = NULL;
}
