/* The files that a command line names: an output never names an input, nor another output.
 *
 * Files are compared by identity, not by spelling: two paths name the same file if they lead to one inode (by a
 * symbolic link, a hard link, another spelling) or, if the file does not exist yet, to one name in one folder. A pipe,
 * a terminal or a device (/dev/null, /dev/stdout of a pipe) has no content to lose and conflicts with nothing.
 *
 * A program adds every file that it will read or write, including those derived from an option (the .svg next to a
 * .png, the files of a folder), and checks once, before its first write:
 *
 *     ls_named_files files = {0};
 *     ls_named_files_add(&files, &(ls_named_file){.option = "--csv", .path = s->csv});
 *     ls_named_files_add(&files, &(ls_named_file){.option = "--json", .path = s->json, .is_output = true});
 *     ls_status status = ls_named_files_check(&files);
 *
 * One thread at a time. Adding reports nothing; the check reports a lack of memory. */
#ifndef LS_BASE_NAMED_FILES_H
#define LS_BASE_NAMED_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct ls_named_file {
    const char *option; /* as the user gives it: "--csv"; a string of static lifetime */
    const char *path;   /* NULL: the option is not given, and nothing is added */
    bool is_output;
    /* Not NULL: `path` is a folder, and this entry stands for all files in it, present or future, whose names `owns`
     * accepts. */
    bool (*owns)(const char *name);
    /* For an input: the option of the one output that may replace it. NULL: none may. */
    const char *replaced_by;
} ls_named_file;

typedef struct ls_named_files {
    struct ls_file_identity *files; /* private */
    size_t count;
    int groups;
    bool no_memory;
} ls_named_files; /* zero-filled: empty */

/* Adds a file, or a folder's files. Takes no reference to the path. */
void ls_named_files_add(ls_named_files *files, const ls_named_file *file);

/* Adds the outputs FOLDER/NAME. `folder` NULL: nothing. */
void ls_named_files_add_outputs(ls_named_files *files, const char *option, const char *folder, const char *const *names,
                                int count);

/* Compares all that was added, and empties the list. LS_ERR_USAGE, with one line that names both options and paths;
 * LS_ERR_NO_MEMORY. */
ls_status ls_named_files_check(ls_named_files *files);

#endif
