/* named_files — collects the files that a command line names, and finds two that are the same.
 *   idea  : a file has two identities. Its inode, if it exists; and its place: the deepest existing folder on its path
 *           (an inode), and the names after that. Two paths with either one in common are the same file
 *   cost  : a few system calls a file, and a comparison for each pair with an output in it */
#include "common/base/named_files.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"

struct ls_file_identity {
    ls_named_file of; /* path: a copy */
    int group;        /* a folder and the files in it have one number; 0: none */
    bool is_there;
    dev_t device, folder_device;
    ino_t number, folder_number; /* of the file; of the deepest existing folder */
    char *rest;                  /* names after that folder: "", "a", "a/b" */
};

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Removes empty names, "." and "..", in place: none of these folders exists yet, so none of them is a link. */
static void simplify(char *rest) {
    char *to = rest;
    for (char *from = rest; *from;) {
        size_t length = strcspn(from, "/");
        bool up = length == 2 && strncmp(from, "..", 2) == 0;
        if (up) {
            while (to > rest && *--to != '/') continue;
        } else if (length > 0 && !(length == 1 && *from == '.')) {
            if (to > rest) *to++ = '/';
            memmove(to, from, length);
            to += length;
        }
        from += length;
        if (*from == '/') from++;
    }
    *to = '\0';
}

/* False if there is no such place (a name is too long, links form a cycle). */
static bool find_place(struct ls_file_identity *file, char rest[PATH_MAX]) {
    char place[PATH_MAX];
    struct stat info;
    if (ls_file_find_place(place, file->of.path) != 0) return false;
    char *name = place + strlen(place), *end = name;
    do {
        while (name > place && name[-1] == '/') name--; /* after the folder's name, or at the root */
        while (name > place && name[-1] != '/') name--;
        char first = *name;
        *name = '\0';
        bool found = stat(name > place ? place : ".", &info) == 0;
        *name = first;
        if (found) {
            file->folder_device = info.st_dev;
            file->folder_number = info.st_ino;
            snprintf(rest, PATH_MAX, "%.*s", (int)(end - name), name);
            simplify(rest);
            return true;
        }
    } while (name > place);
    return false;
}

/* The place of an existing folder is the folder itself, with no names after it. */
static bool identify(struct ls_file_identity *file, char rest[PATH_MAX]) {
    struct stat info;
    bool is_there = stat(file->of.path, &info) == 0;
    if (file->of.owns && is_there) {
        file->folder_device = info.st_dev;
        file->folder_number = info.st_ino;
        rest[0] = '\0';
        return S_ISDIR(info.st_mode);
    }
    if (is_there && !S_ISREG(info.st_mode)) return false;
    file->is_there = is_there;
    if (is_there) {
        file->device = info.st_dev;
        file->number = info.st_ino;
    }
    return find_place(file, rest);
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

static void append(ls_named_files *files, const ls_named_file *of, int group) {
    struct ls_file_identity file = {.of = *of, .group = group};
    char rest[PATH_MAX];
    if (!identify(&file, rest)) return;
    char *path = strdup(of->path);
    file.rest = strdup(rest);
    struct ls_file_identity *more = realloc(files->files, (files->count + 1) * sizeof *more);
    if (more) files->files = more;
    if (!path || !file.rest || !more) {
        free(path);
        free(file.rest);
        files->no_memory = true;
        return;
    }
    file.of.path = path;
    files->files[files->count++] = file;
}

/* Appends each existing file of a folder, since another name may lead to it. */
static void append_members(ls_named_files *files, const ls_named_file *folder, int group) {
    char path[PATH_MAX];
    DIR *directory = opendir(folder->path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        bool fits = snprintf(path, sizeof path, "%s/%s", folder->path, entry->d_name) < (int)sizeof path;
        ls_named_file member = *folder;
        member.path = path;
        member.owns = NULL;
        if (fits && folder->owns(entry->d_name)) append(files, &member, group);
    }
    if (directory) closedir(directory);
}

void ls_named_files_add(ls_named_files *files, const ls_named_file *file) {
    if (!file->path) return;
    int group = file->owns ? ++files->groups : 0;
    if (file->owns) append_members(files, file, group); /* first: a message names a file rather than its folder */
    append(files, file, group);
}

void ls_named_files_add_outputs(ls_named_files *files, const char *option, const char *folder, const char *const *names,
                                int count) {
    char path[PATH_MAX];
    for (int i = 0; folder && i < count; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) >= (int)sizeof path)
            continue; /* cannot be written */
        ls_named_files_add(files, &(ls_named_file){.option = option, .path = path, .is_output = true});
    }
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

/* Whether the folder's rule claims a file at that place. */
static bool is_owned(const struct ls_file_identity *folder, const struct ls_file_identity *file) {
    size_t length = strlen(folder->rest);
    const char *name = file->rest;
    if (!folder->of.owns || file->of.owns || strncmp(name, folder->rest, length) != 0) return false;
    if (length > 0 && name[length] != '/') return false;
    name += length > 0 ? length + 1 : 0;
    return !strchr(name, '/') && folder->of.owns(name);
}

static bool is_same(const struct ls_file_identity *a, const struct ls_file_identity *b) {
    if (a->is_there && b->is_there && a->device == b->device && a->number == b->number) return true;
    if (a->folder_device != b->folder_device || a->folder_number != b->folder_number) return false;
    if (is_owned(a, b) || is_owned(b, a)) return true;
    bool share_folder = a->of.owns && b->of.owns && a->of.owns != b->of.owns; /* but no file names */
    return !share_folder && strcmp(a->rest, b->rest) == 0;
}

static bool may_replace(const struct ls_file_identity *output, const struct ls_file_identity *input) {
    const char *by = input->of.replaced_by;
    return output->of.is_output && !input->of.is_output && by && strcmp(by, output->of.option) == 0;
}

static ls_status check_pair(const struct ls_file_identity *a, const struct ls_file_identity *b) {
    bool may_be_same = (a->group != 0 && a->group == b->group) || (!a->of.is_output && !b->of.is_output) ||
                       may_replace(a, b) || may_replace(b, a);
    if (may_be_same || !is_same(a, b)) return LS_OK;
    const char *lost =
        a->of.is_output && b->of.is_output ? "one output would overwrite the other" : "the input would be overwritten";
    if (strcmp(a->of.path, b->of.path) == 0)
        return ls_fail(LS_ERR_USAGE, "%s and %s name the same file, %s: %s; name another file", a->of.option,
                       b->of.option, a->of.path, lost);
    return ls_fail(LS_ERR_USAGE, "%s and %s name the same file, %s (%s): %s; name another file", a->of.option,
                   b->of.option, a->of.path, b->of.path, lost);
}

ls_status ls_named_files_check(ls_named_files *files) {
    ls_status status =
        files->no_memory ? ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the files' names") : LS_OK;
    for (size_t i = 0; i < files->count; i++)
        for (size_t k = 0; status == LS_OK && k < i; k++) status = check_pair(&files->files[k], &files->files[i]);
    for (size_t i = 0; i < files->count; i++) {
        free((char *)files->files[i].of.path);
        free(files->files[i].rest);
    }
    free(files->files);
    *files = (ls_named_files){0};
    return status;
}
