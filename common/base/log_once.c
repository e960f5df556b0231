#define _GNU_SOURCE
#include "common/base/log_once.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/hash.h"

/* A mark is 40 bits of the message's hash and the 22 bits of a Linux process number; 0: the place is free. */
enum { PLACES = 512, PID_BITS = 24, SEALS = F_SEAL_GROW | F_SEAL_SHRINK };

static _Atomic uint64_t *places; /* written before the first thread starts */

int ls_log_once_create(void) {
    int fd = memfd_create("said", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (ftruncate(fd, PLACES * sizeof *places) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0) return fd;
    close(fd);
    return -1;
}

void ls_log_once_join(int fd) {
    if (places || fcntl(fd, F_GET_SEALS) != SEALS || lseek(fd, 0, SEEK_END) != (off_t)(PLACES * sizeof *places)) return;
    void *memory = mmap(NULL, PLACES * sizeof *places, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) places = memory;
}

bool ls_log_once(const char *message) {
    uint64_t hash = ls_hash(LS_HASH_SEED, message, strlen(message)) >> PID_BITS;
    uint64_t mark = hash << PID_BITS | (uint64_t)getpid();
    for (uint64_t i = 0; places && i < PLACES; i++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&places[(hash + i) % PLACES], &there, mark)) return true;
        if (there >> PID_BITS == hash) return there == mark; /* a process may print it again */
    }
    return true;
}
