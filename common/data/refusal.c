/* refusal — reports, in a line, the files found in place of data, with the command that converts them.
 *   idea  : a name's extension determines the kind, else the file's first bytes; of a folder's files the first in
 *           alphabetical order is shown. If a subfolder has data, it is assumed to be the one meant
 *   fails : the commands guess where labels are (docs/data.md: the last column, a folder for each class) */
#include "common/data/refusal.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file_kind.h"
#include "common/base/log.h"
#include "common/data/dataset.h"

#define TAKEN                                                                                                          \
    "files in MNIST's format (train-images-idx3-ubyte ...), CIFAR's (data_batch_1.bin ... or train.bin) or NumPy's "   \
    "(inputs.npy, targets.npy)"
#define SAVE(x, y) "n.save(\"inputs.npy\", " x "); n.save(\"targets.npy\", " y ")'"
#define TORCH "python3 -c 'import numpy as n, torch; x, y = torch.load(\"%s\"); " SAVE("x.numpy()", "y.numpy()")
#define PICTURES                                                                                                       \
    "python3 -c 'import glob, numpy as n; from PIL import Image; f = sorted(glob.glob(\"%s/*/*\")); " SAVE(            \
        "n.stack([n.array(Image.open(p).convert(\"RGB\")).transpose(2, 0, 1) for p in f])",                            \
        "n.unique([p.split(\"/\")[-2] for p in f], return_inverse=True)[1]")

/* By a name's extension: a command for the file, or for its folder. */
static const struct {
    const char *ending, *command;
    bool of_folder;
} kinds[] = {
    {".pt", TORCH, false},
    {".pth", TORCH, false},
    {".csv",
     "python3 -c 'import numpy as n; a = n.loadtxt(\"%s\", delimiter=\",\", skiprows=1); " SAVE(
         "a[:, :-1].astype(\"f4\")", "a[:, -1].astype(\"i8\")"),
     false},
    {".npz", "python3 -c 'import numpy as n; z = n.load(\"%s\"); x, y = z.files[:2]; " SAVE("z[x]", "z[y]"), false},
    {".parquet",
     "python3 -c 'import numpy as n, pandas; d = pandas.read_parquet(\"%s\"); " SAVE(
         "n.ascontiguousarray(d.iloc[:, :-1], \"f4\")", "n.array(d.iloc[:, -1], \"i8\")"),
     false},
    {".png", PICTURES, true},
    {".jpg", PICTURES, true},
    {".jpeg", PICTURES, true},
    {".zip", "unzip \"%s\"", false},
    {".tar", "tar -xf \"%s\"", false},
    {".tar.gz", "tar -xf \"%s\"", false},
    {".tgz", "tar -xf \"%s\"", false},
};

/* The command for a file of that name; NULL: none is known. */
static const char *command_for(const char *name, bool *of_folder) {
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t tail = strlen(kinds[i].ending);
        *of_folder = kinds[i].of_folder;
        if (length > tail && strcasecmp(name + length - tail, kinds[i].ending) == 0) return kinds[i].command;
    }
    return NULL;
}

static void complete(char *text, size_t capacity, const char *command, const char *path) {
    const char *slot = strstr(command, "%s");
    snprintf(text, capacity, "%.*s%.800s%s", (int)(slot - command), command, path, slot + 2);
}

static const char *verb_of(const char *command) { return strncmp(command, "python", 6) == 0 ? "convert" : "unpack"; }

/* --- a file ------------------------------------------------------------------------------------------------------- */

static ls_status refuse_file(const char *path) {
    char begin[16], folder[PATH_MAX], command[1400];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool of_folder;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, begin, sizeof begin) : 0;
    if (fd >= 0) close(fd);
    const char *kind = ls_file_kind(begin, got > 0 ? (size_t)got : 0);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    const char *convert = command_for(name, &of_folder);
    if (ls_dataset_owns_name(name))
        return ls_fail(LS_ERR_IO, "%s is a file; expected a folder: give --data %s", path, folder);
    if (!convert)
        return ls_fail(LS_ERR_IO, "%s is %s; expected a folder with " TAKEN ", such as data/digits", path,
                       kind ? kind : "a file");
    complete(command, sizeof command, convert, of_folder ? folder : path);
    return ls_fail(LS_ERR_IO, "%s is %s; expected a folder: %s it with: %s", path, kind ? kind : "a file",
                   verb_of(convert), command);
}

ls_status ls_data_check_folder(const char *folder) {
    struct stat entry;
    bool is_there = stat(folder, &entry) == 0;
    if (is_there && S_ISREG(entry.st_mode)) return refuse_file(folder);
    if (is_there && S_ISDIR(entry.st_mode)) return LS_OK;
    if (strcmp(folder, LS_DATA_FASHION) == 0)
        return ls_fail(LS_ERR_IO, "fashion-mnist is not installed: apt-get install dataset-fashion-mnist");
    return ls_fail(LS_ERR_IO, "there is no data folder %s: name one with " TAKEN ", such as data/digits", folder);
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

/* The first name of each kind in a folder, in alphabetical order. */
struct found {
    char file[NAME_MAX + 1], taken[NAME_MAX + 1], folder[NAME_MAX + 1];
    bool pickle; /* CIFAR-10's Python version */
};

static void keep_first(char first[NAME_MAX + 1], const char *name) {
    if (first[0] == '\0' || strcmp(name, first) < 0) snprintf(first, NAME_MAX + 1, "%s", name);
}

/* `inside`: a subfolder, or NULL. */
static void look(struct found *found, const char *folder, const char *inside) {
    char path[PATH_MAX];
    struct stat entry;
    bool of_folder;
    snprintf(path, sizeof path, "%s%s%s", folder, inside ? "/" : "", inside ? inside : "");
    DIR *entries = opendir(path);
    for (struct dirent *e; entries && (e = readdir(entries));) {
        if (e->d_name[0] == '.') continue;
        if (ls_dataset_owns_name(e->d_name)) keep_first(found->taken, e->d_name);
        if (command_for(e->d_name, &of_folder)) keep_first(found->file, e->d_name);
        if (strcmp(e->d_name, "data_batch_1") == 0) found->pickle = true;
        bool is_folder = fstatat(dirfd(entries), e->d_name, &entry, 0) == 0 && S_ISDIR(entry.st_mode);
        if (is_folder) keep_first(found->folder, e->d_name);
    }
    if (entries) closedir(entries);
}

ls_status ls_data_refuse_folder(const char *folder) {
    struct found here = {0}, inside = {0};
    char command[1400], path[PATH_MAX + 2 * NAME_MAX + 3];
    bool of_folder = false;
    look(&here, folder, NULL);
    if (here.folder[0]) look(&inside, folder, here.folder);
    if (here.pickle || inside.pickle)
        return ls_fail(LS_ERR_IO, "%s has CIFAR-10's Python files; expected its binary version, cifar-10-binary.tar.gz",
                       folder);
    if (inside.taken[0])
        return ls_fail(LS_ERR_IO, "%s has no data, but its folder %s does: give --data %s/%s", folder, here.folder,
                       folder, here.folder);
    const struct found *found = here.file[0] ? &here : &inside;
    const char *middle = found == &inside ? here.folder : "", *convert = command_for(found->file, &of_folder);
    if (!convert) return ls_fail(LS_ERR_IO, "there is no data in %s; expected " TAKEN, folder);
    snprintf(path, sizeof path, "%s%s%s/%s", folder, *middle ? "/" : "", middle, found->file);
    complete(command, sizeof command, convert, of_folder ? folder : path);
    return ls_fail(LS_ERR_IO, "--data cannot read the files in %s, but can read %s after conversion: %s it with: %s",
                   folder, path + strlen(folder) + 1, verb_of(convert), command);
}
