/* idx_stream — images and labels of a folder in MNIST's format, read together from front to back.
 *   idea  : opening reads the headers only, for the samples' shape. Each cursor opens the files itself and checks the
 *           headers' counts only when it gets there: a file that is too short, too long or damaged is an error at the
 *           sample where it shows; earlier samples are valid. (Where zlib finds damage, the rest of its buffer is lost,
 *           too, at most 64 KiB.)
 *   cost  : a cursor keeps two zlib buffers of 3 x 32 KiB and one image; nothing grows with the files. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/arrays.h"
#include "common/data/idx_internal.h"

#define LS_STREAM_BUFFER_BYTES (1u << 15)

struct idx_stream {
    ls_dataset base;
    ls_split split;
    float value_of[256];
    char folder[]; /* with its closing zero */
};

struct idx_cursor {
    ls_cursor base;
    ls_idx_reader images, labels;
    uint8_t *pixels; /* of one image */
};

static void close_files(struct idx_cursor *cursor) {
    ls_idx_reader_close(&cursor->images);
    ls_idx_reader_close(&cursor->labels);
}

static ls_status open_files(struct idx_cursor *cursor, const struct idx_stream *stream) {
    const char *prefix = ls_idx_prefix(stream->split, LS_IDX_IMAGES);
    ls_status status = ls_idx_reader_open(&cursor->images, stream->folder, prefix,
                                          ls_idx_images_ndim(stream->folder, prefix), LS_STREAM_BUFFER_BYTES);
    if (status == LS_OK) {
        status = ls_idx_reader_open(&cursor->labels, stream->folder, ls_idx_prefix(stream->split, LS_IDX_LABELS), 1,
                                    LS_STREAM_BUFFER_BYTES);
    }
    return status == LS_OK ? ls_idx_reader_check_room(&cursor->images, 1) : status;
}

static void stream_cursor_close(ls_cursor *base) {
    struct idx_cursor *cursor = (struct idx_cursor *)base;
    close_files(cursor);
    free(cursor->pixels);
    free(cursor);
}

static ls_status stream_cursor_open(ls_cursor **out, const ls_dataset *dataset) {
    const struct idx_stream *stream = (const struct idx_stream *)dataset;
    size_t image_nbytes = ls_sample_input_count(&dataset->spec);
    *out = NULL;
    struct idx_cursor *cursor = calloc(1, sizeof *cursor);
    if (cursor) cursor->pixels = malloc(image_nbytes);
    ls_status status = cursor && cursor->pixels
                           ? open_files(cursor, stream)
                           : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", stream->folder);
    if (status == LS_OK && cursor->images.sample_nbytes != image_nbytes) {
        status = ls_fail(LS_ERR_FORMAT, "%s has changed since it was opened: its images now differ in size",
                         cursor->images.packed.path);
    }
    if (status == LS_OK) {
        *out = &cursor->base;
    } else if (cursor) {
        stream_cursor_close(&cursor->base);
    }
    return status;
}

static ls_status stream_cursor_next(ls_cursor *base, bool *end, float *input, int64_t *label, float *target) {
    (void)target;
    struct idx_cursor *cursor = (struct idx_cursor *)base;
    const struct idx_stream *stream = (const struct idx_stream *)base->dataset;
    size_t sample = cursor->images.position;
    bool images_end = false, labels_end = false;
    uint8_t label_byte = 0;
    ls_status status = ls_idx_reader_next(&cursor->images, cursor->pixels, &images_end);
    if (status == LS_OK) status = ls_idx_reader_next(&cursor->labels, &label_byte, &labels_end);
    if (status == LS_OK && images_end != labels_end) {
        const ls_idx_reader *shorter = images_end ? &cursor->images : &cursor->labels;
        const ls_idx_reader *longer = images_end ? &cursor->labels : &cursor->images;
        status = ls_fail(LS_ERR_FORMAT, "%s ends after %zu samples, but %s has more; expected the same number",
                         shorter->packed.path, sample, longer->packed.path);
    }
    *end = images_end;
    if (status != LS_OK || *end || !input) return status;
    ls_convert_bytes(input, cursor->pixels, cursor->images.sample_nbytes, stream->value_of);
    if (label) *label = label_byte;
    int classes = base->dataset->spec.classes;
    if (label_byte < classes) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "%s: label %u of sample %zu is out of range 0 to %d: there are %d classes",
                   cursor->labels.packed.path, label_byte, sample, classes - 1, classes);
}

static void stream_close(ls_dataset *dataset) { free(dataset); }

/* An invalid label is reported by the cursor that reaches it. */
static void count_classes(struct idx_stream *stream, ls_idx_reader *labels) {
    uint8_t label = 0;
    bool end = false;
    char unsaid[PATH_MAX + 200];
    ls_log_sink before = ls_log_capture(unsaid, sizeof unsaid);
    for (size_t i = 0; ls_idx_reader_next(labels, &label, &end) == LS_OK && !end; i++)
        ls_dataset_note_label(&stream->base, label, i);
    ls_log_restore(before);
}

ls_status ls_dataset_open_stream(ls_dataset **out, const char *folder, ls_split split, int classes,
                                 ls_normalize normalize) {
    static const ls_dataset_kind kind = {.cursor_open = stream_cursor_open,
                                         .cursor_next = stream_cursor_next,
                                         .cursor_close = stream_cursor_close,
                                         .close = stream_close};
    *out = NULL;
    struct idx_cursor *headers = calloc(1, sizeof *headers);
    struct idx_stream *stream = calloc(1, sizeof *stream + strlen(folder) + 1);
    ls_status status = LS_OK;
    if (headers && stream) {
        stream->base.kind = &kind;
        stream->split = split;
        memcpy(stream->folder, folder, strlen(folder) + 1);
        ls_byte_values(stream->value_of, normalize, LS_MNIST_MEAN, LS_MNIST_DEVIATION);
        status = open_files(headers, stream);
        if (status == LS_OK)
            status = ls_idx_spec(&stream->base.spec, headers->images.packed.path, headers->images.ndim,
                                 headers->images.dims);
        stream->base.spec.classes = classes;
        stream->base.promised = headers->images.dims[0];
        if (status == LS_OK && classes == 0) count_classes(stream, &headers->labels);
        close_files(headers);
    } else {
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", folder);
    }
    free(headers);
    if (status == LS_OK)
        *out = &stream->base;
    else
        free(stream);
    return status;
}
