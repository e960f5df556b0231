#include "tests/comm/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define NAMES_CAPACITY 16384

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    int count = 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void add_name(char *names, const char *name) {
    size_t used = strlen(names);
    snprintf(names + used, NAMES_CAPACITY - used, "/%s/\n", name);
}

/* The machine's groups that are being formed, and its named shared memory, one per line. */
static void list_names(char names[NAMES_CAPACITY]) {
    char line[512];
    names[0] = '\0';
    FILE *sockets = fopen("/proc/net/unix", "r");
    while (sockets && fgets(line, sizeof line, sockets)) {
        char *name = strstr(line, "@lockstep-");
        if (name) add_name(names, strtok(name, "\n"));
    }
    if (sockets) fclose(sockets);
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));) add_name(names, entry->d_name);
    if (folder) closedir(folder);
}

static char names_before[NAMES_CAPACITY];
static int descriptors_before;

/* Whether a name exists that `first` already lists, and that did not exist before the tests. */
static bool is_left(char *first) {
    static char now[NAMES_CAPACITY];
    bool left = false;
    list_names(now);
    for (char *name = first, *end; (end = strchr(name, '\n')); name = end + 1) {
        *end = '\0';
        left = left || (strstr(now, name) && !strstr(names_before, name));
        *end = '\n';
    }
    return left;
}

void leftovers_begin(void) {
    list_names(names_before);
    descriptors_before = descriptors();
}

/* Names of other programs of this machine disappear in time. */
void leftovers_check(void) {
    static char first[NAMES_CAPACITY];
    list_names(first);
    for (int i = 0; i < 600 && is_left(first); i++) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (is_left(first)) fail_msg("left behind, among: %s", first);
    assert_int_equal(descriptors(), descriptors_before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}
