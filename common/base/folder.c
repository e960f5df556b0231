#include "common/base/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"

ls_status ls_make_folders(const char *folder) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s", folder), error = length < PATH_MAX ? 0 : ENAMETOOLONG;
    for (char *at = path; error == 0 && *at;) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char behind = *at;
        *at = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST) error = errno;
        *at = behind;
    }
    struct stat info;
    if (error == 0 && (stat(folder, &info) < 0 || !S_ISDIR(info.st_mode))) error = ENOTDIR;
    return error == 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot make the folder %s: %s", folder, strerror(error));
}
