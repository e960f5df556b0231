/* csv: a file with a head, as the benches write it: cells separated by commas, in quotes if they contain commas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "labs/replay/fit_tn/fit_tn.h"

#define MOST_BYTES ((size_t)16 << 20)

static ls_status read_text(fit_tn_csv *csv) {
    size_t nbytes;
    ls_status status = ls_file_read(csv->path, MOST_BYTES, &csv->text, &nbytes);
    if (status != LS_OK || strlen(csv->text) == nbytes) return status;
    return ls_fail(LS_ERR_INVALID, "%s contains a zero byte; expected CSV", csv->path);
}

/* Takes the cell at *at in place and advances *at past it and the comma or newline, which it returns ('\0': the end).
 * '"': a quote is not closed, or not at the ends of the cell. */
static char take_cell(char **at, char **cell, int *line) {
    char *from = *at, *to = *at;
    *cell = to;
    if (*from == '"') {
        for (from++; *from && (*from != '"' || from[1] == '"'); *to++ = *from++) {
            if (*from == '"') from++;
            if (*from == '\n') (*line)++;
        }
        if (*from++ != '"') return '"';
    } else {
        while (*from && *from != ',' && *from != '\n' && *from != '"') *to++ = *from++;
        if (to > *cell && *from == '\n' && to[-1] == '\r') to--;
    }
    if (*from == '\r' && from[1] == '\n') from++;
    char end = *from;
    if (end != ',' && end != '\n' && end != '\0') return '"';
    *at = end ? from + 1 : from;
    *to = '\0';
    if (end == '\n') (*line)++;
    return end;
}

/* Makes room for another cell and, with the first of a row, its line. */
static bool grow(fit_tn_csv *csv, int cells) {
    if ((cells & (cells - 1)) != 0) return true; /* the capacity is a power of two */
    size_t room = cells > 0 ? 2 * (size_t)cells : 1;
    char **more = realloc(csv->cells, room * sizeof *more);
    if (more) csv->cells = more;
    int *lines = realloc(csv->lines, room * sizeof *lines);
    if (lines) csv->lines = lines;
    return more && lines;
}

/* After a row of `width` cells that began at `line`. */
static ls_status end_row(fit_tn_csv *csv, int width, int line) {
    if (csv->rows == 0) csv->columns = width;
    if (width != csv->columns)
        return ls_fail(LS_ERR_INVALID, "%s:%d: the row has %d cells, but the head has %d", csv->path, line, width,
                       csv->columns);
    csv->lines[csv->rows++] = line;
    return LS_OK;
}

static ls_status split(fit_tn_csv *csv) {
    int cells = 0, width = 0, line = 1, row_line = 1;
    ls_status status = LS_OK;
    for (char *at = csv->text; status == LS_OK && *at;) {
        if (!grow(csv, cells)) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %s", csv->path);
        char end = take_cell(&at, &csv->cells[cells], &line);
        if (end == '"') return ls_fail(LS_ERR_INVALID, "%s:%d: a quote is out of place", csv->path, line);
        cells++;
        width++;
        if (end == ',' && *at) continue;
        if (end == ',') return ls_fail(LS_ERR_INVALID, "%s:%d: the file ends within a row", csv->path, line);
        status = end_row(csv, width, row_line);
        width = 0;
        row_line = line;
    }
    if (status == LS_OK && csv->rows < 2) status = ls_fail(LS_ERR_INVALID, "%s has no rows", csv->path);
    return status;
}

ls_status fit_tn_csv_open(fit_tn_csv *csv, const char *path) {
    *csv = (fit_tn_csv){.path = path};
    ls_status status = read_text(csv);
    if (status == LS_OK) status = split(csv);
    if (status != LS_OK) fit_tn_csv_close(csv);
    return status;
}

void fit_tn_csv_close(fit_tn_csv *csv) {
    free(csv->text);
    free(csv->cells);
    free(csv->lines);
    *csv = (fit_tn_csv){.path = NULL};
}

int fit_tn_csv_column(const fit_tn_csv *csv, const char *name) {
    for (int i = 0; i < csv->columns; i++)
        if (strcmp(csv->cells[i], name) == 0) return i;
    return -1;
}

const char *fit_tn_csv_cell(const fit_tn_csv *csv, int row, int column) {
    return column < 0 ? "" : csv->cells[(size_t)row * (size_t)csv->columns + (size_t)column];
}

ls_status fit_tn_csv_number(double *value, const fit_tn_csv *csv, int row, int column) {
    const char *text = fit_tn_csv_cell(csv, row, column);
    char *end = NULL;
    *value = NAN;
    if (!*text) return LS_OK;
    *value = strtod(text, &end);
    if (*end == '\0' && isfinite(*value)) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s:%d: %s is '%s'; expected a number", csv->path, csv->lines[row],
                   csv->cells[column], text);
}
