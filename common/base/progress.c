#include "common/base/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"

#define LS_PROGRESS_PERIOD_US 2e5

ls_progress ls_progress_begin(bool quiet) {
    return (ls_progress){.shown = !quiet && isatty(STDERR_FILENO), .next_us = ls_now_us() + LS_PROGRESS_PERIOD_US};
}

void ls_progress_show(ls_progress *progress, const char *what, int64_t done, int64_t total) {
    if (!progress->shown || ls_now_us() < progress->next_us) return;
    progress->next_us = ls_now_us() + LS_PROGRESS_PERIOD_US;
    fprintf(stderr, "\r\033[K%s %lld", what, (long long)done);
    if (total > 0) fprintf(stderr, "/%lld", (long long)total);
}

void ls_progress_end(ls_progress *progress) {
    if (progress->shown) fputs("\r\033[K", stderr);
}
