#define _GNU_SOURCE
#include "ddp_procs/launch/open_files.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"

enum { COUNT_MAX = 512 };

ls_status ddp_check_open_files(int count, const char *who) {
    int files[COUNT_MAX], opened = 0, failure = 0;
    if (count > COUNT_MAX) count = COUNT_MAX;
    while (opened < count && !failure) {
        files[opened] = eventfd(0, EFD_CLOEXEC);
        failure = files[opened] < 0 ? errno : 0;
        if (!failure) opened++;
    }
    for (int i = 0; i < opened; i++) close(files[i]);
    struct rlimit limit = {0};
    if (!failure || getrlimit(RLIMIT_NOFILE, &limit) < 0) return LS_OK;
    return ls_fail(LS_ERR_SYSTEM, "too many open files: %s needs %d more, of which it gets %d (%s; ulimit -n is %llu)",
                   who, count, opened, strerror(failure), (unsigned long long)limit.rlim_cur);
}
