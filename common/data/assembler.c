#include "common/data/assembler.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

#define LS_BUFFER_ALIGNMENT 64 /* a cache line */
#define LS_PAGE_NBYTES 4096
/* Values that are read before they are rounded: few enough to stay in the first-level cache. */
#define LS_ROUNDED_TOGETHER ((size_t)2048)

/* NULL: no memory. Pinned arrays share no page, since each is pinned on its own. */
static void *alloc_array(size_t nbytes, ls_device *pin_for) {
    size_t alignment = pin_for ? LS_PAGE_NBYTES : LS_BUFFER_ALIGNMENT;
    void *memory = NULL;
    if (nbytes > SIZE_MAX - alignment) return NULL;
    if (pin_for) nbytes = (nbytes / LS_PAGE_NBYTES + 1) * LS_PAGE_NBYTES;
    if (posix_memalign(&memory, alignment, nbytes) != 0) return NULL;
    if (pin_for) ls_device_pin_host(pin_for, memory, nbytes);
    return memory;
}

static void free_array(void *memory, ls_device *pinned_for) {
    if (memory && pinned_for) ls_device_unpin_host(pinned_for, memory);
    free(memory);
}

bool ls_batch_slot_alloc(ls_batch_slot *slot, const ls_sample_spec *spec, size_t sample_count, ls_dtype precision,
                         ls_device *pin_for) {
    size_t input_nbytes, label_nbytes, target_nbytes;
    size_t element_nbytes = spec->tokens ? sizeof(int32_t) : ls_dtype_nbytes(precision);
    if (__builtin_mul_overflow(sample_count, ls_sample_input_count(spec) * element_nbytes, &input_nbytes)) return false;
    if (__builtin_mul_overflow(sample_count, ls_sample_label_count(spec) * sizeof(int64_t), &label_nbytes))
        return false;
    if (__builtin_mul_overflow(sample_count, spec->target_count * sizeof(float), &target_nbytes)) return false;
    slot->pinned_for = pin_for;
    slot->inputs = alloc_array(input_nbytes, pin_for);
    if (spec->classes > 0) slot->labels = alloc_array(label_nbytes, pin_for);
    if (spec->target_count > 0) slot->targets = alloc_array(target_nbytes, pin_for);
    slot->batch = (ls_batch){.inputs = slot->inputs, .labels = slot->labels, .targets = slot->targets};
    return slot->inputs && (spec->classes == 0 || slot->labels) && (spec->target_count == 0 || slot->targets);
}

void ls_batch_slot_free(ls_batch_slot *slot) {
    free_array(slot->inputs, slot->pinned_for);
    free_array(slot->labels, slot->pinned_for);
    free_array(slot->targets, slot->pinned_for);
}

/* Whether the inputs' type differs from the data set's. */
static bool rounds(const ls_assembler *assembler) {
    return assembler->precision != LS_FP32 && !ls_dataset_spec(assembler->dataset)->tokens;
}

/* The number of samples that are read before they are rounded. */
static size_t rounded_together(const ls_assembler *assembler) {
    size_t input_count = ls_sample_input_count(ls_dataset_spec(assembler->dataset));
    return input_count < LS_ROUNDED_TOGETHER ? LS_ROUNDED_TOGETHER / input_count : 1;
}

bool ls_assembler_alloc(ls_assembler *assembler) {
    if (!rounds(assembler)) return true;
    size_t input_count = ls_sample_input_count(ls_dataset_spec(assembler->dataset));
    assembler->samples = malloc(rounded_together(assembler) * input_count * sizeof *assembler->samples);
    return assembler->samples != NULL;
}

/* Reads the batch's samples from number `at` on; labels and targets go to the slot. `indices`: the batch's; NULL: a
 * stream, which may end earlier. */
static ls_status read_samples(const ls_assembler *assembler, const int64_t *indices, size_t at, size_t count,
                              void *inputs, const ls_batch_slot *slot, size_t *read) {
    const ls_sample_spec *spec = ls_dataset_spec(assembler->dataset);
    int64_t *labels = slot->labels ? slot->labels + at * ls_sample_label_count(spec) : NULL;
    float *targets = slot->targets ? slot->targets + at * spec->target_count : NULL;
    if (!indices) return ls_cursor_read(assembler->cursor, count, inputs, labels, targets, read);
    *read = count;
    return ls_dataset_read(assembler->dataset, indices + at, count, inputs, labels, targets);
}

/* Reads the whole batch, in the loader's precision. */
static ls_status read_batch(const ls_assembler *assembler, const int64_t *indices, size_t count, ls_batch_slot *slot,
                            size_t *read) {
    if (!rounds(assembler)) return read_samples(assembler, indices, 0, count, slot->inputs, slot, read);
    size_t input_count = ls_sample_input_count(ls_dataset_spec(assembler->dataset));
    size_t together = rounded_together(assembler), part = together;
    ls_status status = LS_OK;
    for (*read = 0; status == LS_OK && part > 0 && *read < count; *read += part) {
        part = count - *read < together ? count - *read : together;
        status = read_samples(assembler, indices, *read, part, assembler->samples, slot, &part);
        if (status != LS_OK) break;
        uint16_t *place = (uint16_t *)slot->inputs + *read * input_count;
        ls_cast_now(assembler->precision, place, assembler->samples, part * input_count);
    }
    return status;
}

static ls_status fill_by_index(const ls_assembler *assembler, ls_batch_slot *slot) {
    struct ls_batch_indices share;
    ls_batches_get(assembler->batches, slot->batch.step, &share);
    slot->batch.count = share.local_count;
    slot->batch.global_count = share.global_count;
    size_t read;
    return read_batch(assembler, share.indices, share.local_count, slot, &read);
}

/* Begins a pass over this worker's share of the stream. Each worker of each rank has a share; ls_stream_share (batch.h)
 * assigns them. */
static ls_status open_share(ls_assembler *assembler) {
    const ls_stream_share *stream = &assembler->stream;
    size_t workers = (size_t)assembler->workers;
    return ls_cursor_create(&assembler->cursor, assembler->dataset,
                            (size_t)stream->rank * workers + (size_t)assembler->worker,
                            (size_t)stream->world_size * workers);
}

static ls_status fill_from_stream(ls_assembler *assembler, ls_batch_slot *slot) {
    const ls_stream_share *stream = &assembler->stream;
    ls_status status = assembler->cursor ? LS_OK : open_share(assembler);
    size_t count = 0;
    if (status == LS_OK) status = read_batch(assembler, NULL, stream->local_batch, slot, &count);
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
