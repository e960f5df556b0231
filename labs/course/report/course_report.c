/* course_report — a student's report on the course, as one HTML page: `make report` calls it.
 *
 *     build/course_report --out=report.html --built=build/labs --code=. 02 03
 *
 * labs/course/report.sh has found out what there is of each lab (BUILT/NN/report.facts, report.diff). Here it is put
 * together with verdicts, pictures and answers. Exit status: 0 the page is written, 1 not, and an older one is as it was, 2
 * wrong usage. */
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/named_files.h"
#include "common/base/options.h"
#include "common/base/results.h"
#include "labs/course/report/page.h"

struct settings {
    const char *out, *built, *code, *results, *student, *language, *compiler;
};

static ls_status parse(struct settings *s, int argc, char **argv, ls_parsed *parsed) {
    const ls_option options[] = {
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->out, .argument = "FILE", .help = "the page"},
        {.kind = LS_OPTION_STRING,
         .name = "built",
         .to.text = &s->built,
         .argument = "DIR",
         .help = "where labs/course/report.sh, make lab and make grade have left what they found"},
        {.kind = LS_OPTION_STRING,
         .name = "code",
         .to.text = &s->code,
         .argument = "DIR",
         .help = "the student's files"},
        {.kind = LS_OPTION_STRING,
         .name = "results",
         .to.text = &s->results,
         .argument = "DIR",
         .help = "where programs have drawn their pictures"},
        {.kind = LS_OPTION_STRING, .name = "student", .to.text = &s->student, .argument = "NAME", .help = "who did it"},
        {.kind = LS_OPTION_STRING,
         .name = "compiler",
         .to.text = &s->compiler,
         .argument = "WORDS",
         .help = "which compiler the labs are built with",
         .empty = "this program's"},
        {.kind = LS_OPTION_STRING,
         .name = "language",
         .to.text = &s->language,
         .argument = "en|zh",
         .help = "of the page's own words"},
    };
    const ls_command command = {.purpose = "Writes a report on labs as one HTML page: `make report` calls it.",
                                .operands = "LAB...",
                                .options = options,
                                .count = sizeof options / sizeof options[0]};
    ls_status status = ls_options_parse(&command, argc, argv, parsed);
    if (status != LS_OK || parsed->help) return status;
    if (parsed->first_operand == argc) return ls_fail(LS_ERR_USAGE, "which labs? their numbers, as 02 03");
    return s->out ? ls_file_check(s->out) : ls_fail(LS_ERR_USAGE, "where to? --out=FILE.html");
}

static ls_status open_labs(page *p, const struct settings *s, char **numbers) {
    ls_status status = LS_OK;
    for (; status == LS_OK && *numbers; numbers++)
        status = page_lab_open(&p->labs[p->lab_count++], s->built, *numbers, s->code);
    return status;
}

static ls_status write_page(const page *p, const char *path) {
    char *text = page_text(p);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "no memory for %s", path);
    ls_status status = ls_file_write_text(path, text);
    if (status == LS_OK) printf("report: %s\n", path);
    free(text);
    return status;
}

/* What report.sh, make lab and make grade have left, and pictures. */
static bool is_found(const char *name) {
    const char *ending = strrchr(name, '.');
    return strcmp(name, "report.facts") == 0 || strcmp(name, "report.diff") == 0 || strcmp(name, "grade.json") == 0 ||
           (ending && (strcmp(ending, ".svg") == 0 || strcmp(ending, ".png") == 0));
}

/* The page takes the place of nothing that it is made of. */
static ls_status check_out(const page *p, const struct settings *s) {
    ls_named_files files = {0};
    ls_named_files_add(&files, &(ls_named_file){.option = "--out", .path = s->out, .is_output = true});
    ls_named_files_add(&files, &(ls_named_file){.option = "--results", .path = s->results, .owns = is_found});
    for (int i = 0; i < p->lab_count; i++) {
        const page_lab *lab = &p->labs[i];
        ls_named_files_add(&files, &(ls_named_file){.option = "--built", .path = lab->figures, .owns = is_found});
        ls_named_files_add(&files, &(ls_named_file){.option = "--code", .path = lab->answers_file});
    }
    return ls_named_files_check(&files);
}

static ls_status run(const struct settings *s, char **numbers, int count) {
    page p = {.language = strncmp(s->language, "zh", 2) == 0 ? CHINESE : ENGLISH,
              .student = s->student,
              .results = s->results};
    p.labs = calloc((size_t)count, sizeof *p.labs);
    if (!p.labs) return ls_fail(LS_ERR_NO_MEMORY, "no memory for %d labs", count);
    bench_describe_machine(&p.machine);
    if (s->compiler) snprintf(p.machine.compiler, sizeof p.machine.compiler, "%s", s->compiler);
    ls_status status = open_labs(&p, s, numbers);
    if (status == LS_OK) status = check_out(&p, s);
    if (status == LS_OK) status = write_page(&p, s->out);
    for (int i = 0; i < p.lab_count; i++) page_lab_close(&p.labs[i]);
    free(p.labs);
    return status;
}

int main(int argc, char **argv) {
    struct settings settings = {.built = "build/labs", .code = ".", .results = "build/results", .language = "en"};
    ls_parsed parsed;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &parsed);
    if (status == LS_OK && !parsed.help)
        status = run(&settings, argv + parsed.first_operand, argc - parsed.first_operand);
    return ls_status_exit_code(ls_results_written(status));
}
