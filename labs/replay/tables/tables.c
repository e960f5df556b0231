/* tables — published and required figures beside ours: step times, speed-ups, messages, memory.
 *
 * The tables' files (file.h) are read first: a mistake in one of them ends the program. Each table is made, printed and
 * recorded; at the end all are written to FOLDER/tables.csv and FOLDER/tables.md. Exit status 0 if every table could be
 * made: a missed bound is a result, printed at the end, unless --strict makes it a failure (status 1, as for a table
 * that cannot be made; 3 if that was a timeout, --timeout). The files are written in any case, with all tables that
 * were made. gnuplot draws from the CSV (plots/tables_*.gp). */
#include <stdio.h>

#include "common/base/results.h"
#include "labs/bench/shared/settings.h"
#include "labs/replay/tables/file.h"
#include "labs/replay/tables/tables.h"

static ls_status parse(tables_settings *settings, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_INT_LIST,
         .name = "tables",
         .to.list = &settings->wanted,
         .argument = "K,K,...",
         .limits = LS_AT_LEAST(1),
         .help = "only these",
         .empty = "all"},
        {.kind = LS_OPTION_STRING,
         .name = "out",
         .to.text = &settings->folder,
         .argument = "FOLDER",
         .help = "tables.csv and tables.md go there"},
        {.kind = LS_OPTION_FLAG, .name = "quick", .to.flag = &settings->quick, .help = "smaller sizes and fewer N"},
        {.kind = LS_OPTION_FLAG,
         .name = "strict",
         .to.flag = &settings->strict,
         .help = "exit status 1 if a bound is missed"},
        {.kind = LS_OPTION_DOUBLE,
         .name = "timeout",
         .to.real = &settings->timeout_s,
         .argument = "SECONDS",
         .limits = LS_ABOVE(0),
         .help = "end a training run, and its table, after this many seconds"},
    };
    return BENCH_PARSE(table, "Prints published figures beside what is measured or replayed here.", argc, argv, help);
}

static const char *const names[] = {TABLES_NAMES};
enum { TABLES = sizeof names / sizeof *names };

static bool is_wanted(const tables_settings *settings, int number) {
    for (int i = 0; i < settings->wanted.count; i++)
        if (settings->wanted.values[i] == number) return true;
    return settings->wanted.count == 0;
}

static ls_status check_wanted(const tables_settings *settings) {
    for (int i = 0; i < settings->wanted.count; i++)
        if (settings->wanted.values[i] > TABLES)
            return ls_fail(LS_ERR_USAGE, "--tables: table %d does not exist; expected 1 to %d",
                           settings->wanted.values[i], TABLES);
    return LS_OK;
}

/* Called before any table is made, so that a mistake in the last file is found at once. */
static ls_status open_wanted(tables_file files[TABLES], const tables_settings *settings) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < TABLES; i++)
        if (is_wanted(settings, i + 1)) status = tables_file_open(&files[i], names[i]);
    return status;
}

/* Makes all requested tables, even if one of them cannot be made. */
static ls_status make_tables(tables_book *book, const tables_file files[TABLES], const tables_settings *settings) {
    ls_status first_failure = LS_OK;
    for (int i = 0; i < TABLES; i++) {
        if (!files[i].title) continue;
        ls_note("table %d: %s", i + 1, files[i].title);
        tables_begin(book, i + 1, files[i].title);
        ls_status status = tables_make(book, &files[i], settings);
        if (status != LS_OK) tables_text(book, "This table could not be made to its end: %s.", ls_status_text(status));
        ls_status printed = tables_print(book, i + 1, stdout);
        fflush(stdout);
        if (status == LS_OK) status = printed;
        if (first_failure == LS_OK) first_failure = status;
    }
    return first_failure;
}

int main(int argc, char **argv) {
    tables_settings settings = {.folder = "build/results", .timeout_s = 120};
    static tables_file files[TABLES];
    tables_book *book = NULL;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &help);
    if (status == LS_OK && help) return 0;
    if (status == LS_OK) status = check_wanted(&settings);
    if (status == LS_OK) status = open_wanted(files, &settings);
    if (status == LS_OK) status = tables_prepare_files(settings.folder);
    if (status == LS_OK) status = tables_book_create(&book);
    if (status != LS_OK) return ls_status_exit_code(status);
    status = make_tables(book, files, &settings);
    ls_status written = tables_write_files(book, settings.folder);
    ls_status judged = tables_judge(book, settings.strict, stdout);
    if (status == LS_OK) status = written != LS_OK ? written : judged;
    tables_book_destroy(book);
    for (int i = 0; i < TABLES; i++) tables_file_close(&files[i]);
    return ls_status_exit_code(ls_results_written(status));
}
