/* report_check — whether the files that the options name can be written, and differ from each other.
 *   idea  : all checks precede the first step, and all files are checked before the first is emptied
 *   cost  : a few system calls a file, and for each pair of files */
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/named_files.h"
#include "common/data/text.h"
#include "common/nn/network_text.h"
#include "common/report/lines.h"
#include "common/report/report.h"
#include "common/trace/chrome.h"

/* Pipes that were checked. Their readers end with the last writer, so each stays open until the next check, or until
 * this process ends, which may only check and then start the processes that write. */
static int held[] = {-1, -1};

/* How an output is written: lines from the start of the run on; or as a whole, replacing the earlier file when it is
 * complete (a text, or weights). */
typedef enum { LINES, WHOLE } use;

struct output {
    const char *option, *path; /* NULL: not given */
    use use;
};

/* --save may replace the checkpoint that the run resumes from; no output may replace any other input. */
static ls_status check_different(const struct output *outputs, int count, const ls_train_options *o) {
    ls_named_files files = {0};
    const ls_named_file others[] = {
        {.option = "--trace", .path = o->trace, .is_output = true, .owns = ls_trace_owns_name},
        {.option = "--resume", .path = o->resume, .replaced_by = "--save"},
        {.option = "--resume-if-present", .path = o->resume_if_present, .replaced_by = "--save"},
        {.option = "--init", .path = o->init},
        {.option = "--data", .path = ls_train_data_folder(o), .owns = ls_dataset_owns_name}};
    for (int i = 0; i < count; i++) {
        const ls_named_file file = {.option = outputs[i].option, .path = outputs[i].path, .is_output = true};
        ls_named_files_add(&files, &file);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) ls_named_files_add(&files, &others[i]);
    char network[PATH_MAX];
    if (ls_network_file(o->model, network, sizeof network))
        ls_named_files_add(&files, &(ls_named_file){.option = "--model", .path = network});
    const char *texts = ls_train_text_files(o);
    char text[PATH_MAX];
    while (texts && ls_text_next_file(&texts, text))
        ls_named_files_add(&files, &(ls_named_file){.option = "--data", .path = text});
    return ls_named_files_check(&files);
}

/* A resumed run would overwrite its lines from the middle of the run on. With --resume-if-present, for runs that
 * restart with the same command line, they are kept (ls_lines_keep). */
static ls_status check_kept(const struct output *file) {
    struct stat info;
    if (stat(file->path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "%s %s holds the lines of an earlier run, which --resume would overwrite; name another file, or "
                   "continue them with --resume-if-present",
                   file->option, file->path);
}

static ls_status check_writable(const struct output *file, int *held_fd) {
    if (!file->path) return LS_OK;
    return file->use == LINES ? ls_lines_check(file->path, held_fd) : ls_file_check(file->path);
}

ls_status ls_report_check(const ls_train_options *o) {
    const char *summary = o->summary && strcmp(o->summary, "-") == 0 ? NULL : o->summary;
    const struct output outputs[] = {{"--metrics", o->metrics, LINES}, /* the two LINES come first */
                                     {"--dump-losses", o->dump_losses, LINES},
                                     {"--summary", summary, WHOLE},
                                     {"--save", o->save, WHOLE},
                                     {"--save-weights", o->save_weights, WHOLE}};
    enum { OUTPUTS = sizeof outputs / sizeof *outputs };
    ls_status status = check_different(outputs, OUTPUTS, o);
    for (int i = 0; status == LS_OK && i < OUTPUTS; i++) status = check_writable(&outputs[i], &held[i % 2]);
    for (int i = 0; status == LS_OK && o->resume && i < OUTPUTS; i++) {
        if (outputs[i].path && outputs[i].use == LINES) status = check_kept(&outputs[i]);
    }
    return status;
}
