/* course_report — sanitises the parts of a student's report (`make report`, labs/course/report.sh) that others wrote:
 * its output can be put into an HTML page.
 *
 *     build/course_report --as=answers FILE
 *
 * Exit status: 0 printed; 1 the file cannot be read, or a picture cannot be shown: then the reason is printed; 2 wrong
 * usage. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes_text.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/results.h"
#include "common/base/version.h"
#include "labs/bench/shared/machine.h"
#include "labs/course/grade/verdict.h"
#include "labs/course/report/html.h"
#include "labs/course/report/markdown.h"
#include "labs/course/report/svg.h"

enum { MOST_BYTES = 4 << 20, MOST_ANSWERS = 1 << 20 };

static ls_status put_file(const char *path, bool answers) {
    char *text;
    size_t nbytes;
    ls_status status = ls_file_read(path, answers ? MOST_ANSWERS : MOST_BYTES, &text, &nbytes);
    if (status == LS_OK && answers) markdown_put(stdout, text, nbytes);
    if (status == LS_OK && !answers) html_put(stdout, text, nbytes);
    free(text);
    return status;
}

/* The error of an unreadable picture is also a reason for the page, not an error of this program. */
static ls_status put_picture(const char *path, const char *prefix) {
    char why[SVG_WHY_CAPACITY] = "", *text = NULL, *drawn = NULL;
    size_t nbytes = 0, drawn_nbytes;
    const char *slash = strrchr(path, '/');
    ls_log_sink before = ls_log_capture(why, sizeof why);
    ls_status status = ls_file_read(path, SVG_MOST_BYTES, &text, &nbytes);
    ls_log_restore(before);
    FILE *picture = status == LS_OK ? open_memstream(&drawn, &drawn_nbytes) : NULL;
    if (picture) {
        svg_put(picture, why, text, nbytes, prefix, slash ? slash + 1 : path);
        fclose(picture);
    }
    if (!drawn && !why[0]) snprintf(why, sizeof why, "no memory");
    fputs(why[0] ? why : drawn, stdout);
    free(text);
    free(drawn);
    return why[0] ? LS_ERR_INVALID : LS_OK;
}

/* --- facts for page.awk: lines of a key and fields, which --as=text still has to sanitise ------------------------- */

static void put_field(const char *text) {
    putchar('\t');
    for (; *text; text++) putchar(strchr("\t\r\n", *text) ? ' ' : *text);
}

static void put_judged(ls_json *json, const cJSON *check) {
    const char *name = ls_json_text(json, check, "verdict"), *shown = name;
    words_language language = words_language_of(getenv("LS_LANG"));
    for (int v = VERDICT_HELD; v <= VERDICT_NOT_RUN; v++)
        if (strcmp(name, verdict_name((verdict)v, WORDS_ENGLISH)) == 0) shown = verdict_name((verdict)v, language);
    fputs("judged", stdout);
    put_field(ls_json_text(json, check, "check"));
    put_field(strcmp(name, "held") == 0 ? "held" : "lost");
    put_field(shown);
    printf("\t%d", (int)ls_json_whole(json, check, "points", 0, 1000));
    printf("\t%d", (int)ls_json_whole(json, check, "of", 0, 1000));
    put_field(ls_json_text(json, check, "invariant"));
    bool has_chinese = cJSON_HasObjectItem(check, "why_zh"); /* older graders do not write it */
    put_field(ls_json_text(json, check, language == WORDS_CHINESE && has_chinese ? "why_zh" : "why"));
    putchar('\n');
}

static ls_status put_grade(const char *path) {
    ls_json *json;
    ls_status status = ls_json_open(&json, path);
    if (status != LS_OK) return status;
    const cJSON *root = ls_json_root(json), *check;
    printf("grade\t%d", (int)ls_json_whole(json, root, "points", 0, 100000));
    printf("\t%d", (int)ls_json_whole(json, root, "of", 0, 100000));
    printf("\t%.0f\n", ls_json_number(json, root, "seed", 0, 1e15));
    cJSON_ArrayForEach(check, ls_json_array(json, root, "checks")) put_judged(json, check);
    status = ls_json_failed(json) ? LS_ERR_INVALID : LS_OK;
    ls_json_close(json);
    return status;
}

static void put_fact(const char *name, const char *value, const char *more) {
    printf("machine\t%s", name);
    put_field(value);
    put_field(more);
    putchar('\n');
}

static ls_status put_machine(const char *compiler) {
    bench_machine m;
    char cores[16], load[32] = "unknown", memory[LS_BYTES_TEXT_CAPACITY], date[32];
    bench_describe_machine(&m);
    snprintf(cores, sizeof cores, "%d", m.cores);
    if (m.load >= 0) snprintf(load, sizeof load, "%.2f", m.load);
    snprintf(date, sizeof date, "%.10s %.5s UTC", m.date, strlen(m.date) > 16 ? m.date + 11 : "");
    put_fact("processor", m.cpu, "");
    put_fact("cores", cores, "");
    put_fact("memory", ls_bytes_text(memory, (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)), "");
    put_fact("load", load, "");
    put_fact("system", m.system, "");
    put_fact("compiler", compiler ? compiler : m.compiler, "");
    put_fact("lockstep", LS_VERSION, strcmp(m.commit, "unknown") == 0 ? "" : m.commit);
    put_fact("date", date, "");
    return LS_OK;
}

int main(int argc, char **argv) {
    enum { AS_TEXT, AS_ANSWERS, AS_PICTURE, AS_GRADE, AS_MACHINE };
    static const char *const kinds[] = {"text", "answers", "picture", "grade", "machine", NULL};
    const char *prefix = "picture-", *compiler = NULL;
    int as = AS_TEXT;
    const ls_option options[] = {
        {.kind = LS_OPTION_CHOICE,
         .name = "as",
         .to.number = &as,
         .choices = kinds,
         .help = "what FILE is; machine: this one"},
        {.kind = LS_OPTION_STRING,
         .name = "prefix",
         .to.text = &prefix,
         .argument = "NAME",
         .help = "of a picture: begins the names in it; letters, digits and hyphens"},
        {.kind = LS_OPTION_STRING,
         .name = "compiler",
         .to.text = &compiler,
         .argument = "WORDS",
         .help = "of a machine: which one the labs are built with",
         .empty = "this program's"},
    };
    const ls_command command = {.purpose = "Prints a part of a report on labs as HTML: `make report` calls it.",
                                .operands = "FILE",
                                .options = options,
                                .count = sizeof options / sizeof options[0]};
    ls_parsed parsed;
    ls_log_init(argv[0], -1, false);
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    if (status == LS_OK && !parsed.help) {
        const char *file = argv[parsed.first_operand];
        if (argc - parsed.first_operand != (as != AS_MACHINE))
            status = ls_fail(LS_ERR_USAGE,
                             as == AS_MACHINE ? "--as=machine takes no file" : "course_report takes exactly one file");
        else if (prefix[strspn(prefix, "abcdefghijklmnopqrstuvwxyz0123456789-")])
            status = ls_fail(LS_ERR_USAGE, "--prefix takes letters, digits and hyphens");
        else
            status = as == AS_TEXT      ? put_file(file, false)
                     : as == AS_ANSWERS ? put_file(file, true)
                     : as == AS_PICTURE ? put_picture(file, prefix)
                     : as == AS_GRADE   ? put_grade(file)
                                        : put_machine(compiler);
    }
    return ls_status_exit_code(ls_results_written(status));
}
