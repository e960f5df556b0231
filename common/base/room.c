#include "common/base/room.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first number of /proc/self/statm: pages of address space. Allocates nothing. */
static bool read_pages(unsigned long long *pages) {
    char text[32];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    if (got <= 0) return false;
    text[got] = '\0';
    *pages = strtoull(text, NULL, 10);
    return *pages > 0;
}

size_t ls_address_space_left(void) {
    struct rlimit limit;
    unsigned long long pages;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !read_pages(&pages)) return SIZE_MAX;
    unsigned long long used = pages * (unsigned long long)sysconf(_SC_PAGESIZE);
    return used < limit.rlim_cur ? (size_t)(limit.rlim_cur - used) : 0;
}
