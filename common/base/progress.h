/* A progress line on stderr: shown on a terminal only, a few times a second, and wiped when it is done. */
#ifndef LS_BASE_PROGRESS_H
#define LS_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_progress {
    bool shown; /* stderr is a terminal, and not `quiet` */
    double next_us;
} ls_progress;

ls_progress ls_progress_begin(bool quiet);

/* Shows "what 3/24", or "what 3" if `total` is 0 (not known). Redraws a few times a second at most. */
void ls_progress_show(ls_progress *progress, const char *what, int64_t done, int64_t total);

void ls_progress_end(ls_progress *progress);

#endif
