/* stream — shares of a stream that has no indices.
 *   idea  : a cursor goes through the whole stream and skips the samples of the other shares. So every sample is read
 *           exactly once over all shares, whatever the stream's length, and the shares need to agree only on their
 *           number.
 *   cost  : each of S shares reads all bytes: every byte is read S times, and converted once. Shares that read only
 *           their own part would need files that can be split, or a stream for each. */
#include "common/data/dataset_internal.h"

bool ls_dataset_is_stream(const ls_dataset *dataset) { return dataset->kind->cursor_open != NULL; }

ls_status ls_cursor_create(ls_cursor **out, const ls_dataset *dataset, size_t share, size_t shares) {
    *out = NULL;
    ls_cursor *cursor = NULL;
    ls_status status = dataset->kind->cursor_open(&cursor, dataset);
    if (status != LS_OK) return status;
    *cursor = (ls_cursor){.dataset = dataset, .share = share, .shares = shares};
    *out = cursor;
    return LS_OK;
}

/* Reads the share's next sample into the three buffers, or finds the end of the stream. Samples of other shares are
 * skipped in order: a failure in one of them fails this share, too. */
static ls_status next_own(ls_cursor *cursor, float *input, int64_t *label, float *target) {
    const ls_dataset_kind *kind = cursor->dataset->kind;
    for (;;) {
        bool own = cursor->turn == cursor->share;
        ls_status status =
            kind->cursor_next(cursor, &cursor->ended, own ? input : NULL, own ? label : NULL, own ? target : NULL);
        if (status != LS_OK || cursor->ended) return status;
        cursor->turn = cursor->turn + 1 < cursor->shares ? cursor->turn + 1 : 0;
        if (own) return LS_OK;
    }
}

ls_status ls_cursor_read(ls_cursor *cursor, size_t count, float *inputs, int64_t *labels, float *targets,
                         size_t *read) {
    const ls_sample_spec *spec = &cursor->dataset->spec;
    size_t input_count = ls_sample_input_count(spec), got = 0;
    if (spec->classes == 0) labels = NULL;
    if (spec->target_count == 0) targets = NULL;
    ls_status status = LS_OK;
    while (status == LS_OK && got < count && !cursor->ended) {
        status = next_own(cursor, inputs + got * input_count, labels ? labels + got : NULL,
                          targets ? targets + got * spec->target_count : NULL);
        if (status == LS_OK && !cursor->ended) got++;
    }
    *read = status == LS_OK ? got : 0;
    return status;
}

void ls_cursor_destroy(ls_cursor *cursor) {
    if (cursor) cursor->dataset->kind->cursor_close(cursor);
}
