/* Published figures (published.json): each with its source, and with what it is used for. */
#ifndef LABS_REPLAY_TABLES_PUBLISHED_H
#define LABS_REPLAY_TABLES_PUBLISHED_H

#include <stdbool.h>

#include "common/base/status.h"

enum { PUBLISHED_MAX = 64 };

struct published_figure {
    const char *what; /* with its unit: "resnet50 step, ms" */
    const char *mode;
    int n;
    double value;
    bool is_row; /* compared with ours; otherwise an input of ours. Never both */
    const char *source;
};

typedef struct published {
    int count;
    struct published_figure figures[PUBLISHED_MAX];
    void *storage;
} published;

/* From labs/replay/tables/published.json, or another path. LS_ERR_IO; LS_ERR_INVALID ("FILE:LINE: ...") also if two
 * figures are of the same thing, or a step or an epoch of more than one device is an input. On failure there is nothing
 * to close. */
ls_status published_open(published *to, const char *name);
void published_close(published *figures);

/* LS_ERR_INVALID if there is none, or if it is not marked as an input. */
ls_status published_input(double *value, const published *figures, const char *what, const char *mode, int n);

#endif
