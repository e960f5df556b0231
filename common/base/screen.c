/* screen — a frame is one string: "cursor up" to where the block begins, "erase to the end of the line" after each
 * line, and "erase below" at the end, in case the block has become shorter. So new lines replace old ones, and the
 * block is never empty. The cursor is neither hidden nor saved, so a killed program leaves nothing to be restored. */
#include "common/base/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ROWS_UNKNOWN = 24, COLUMNS_UNKNOWN = 80 };

ls_screen ls_screen_begin(bool quiet) {
    const char *terminal = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool can = isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
    return (ls_screen){.shown = can && !quiet, .bold = !(no_color && no_color[0] != '\0')};
}

static void find_size(int *rows, int *columns) {
    struct winsize size = {0};
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
    *rows = known && size.ws_row > 0 ? size.ws_row : ROWS_UNKNOWN;
    *columns = known && size.ws_col > 0 ? size.ws_col : COLUMNS_UNKNOWN;
}

int ls_screen_rows(void) {
    int rows, columns;
    find_size(&rows, &columns);
    return rows > 1 ? rows - 1 : 1;
}

/* If the terminal accepts no more, the rest appears with the next frame. */
static void write_frame(const char *frame, size_t nbytes) {
    while (nbytes > 0) {
        ssize_t written = write(STDERR_FILENO, frame, nbytes);
        if (written <= 0) return;
        frame += written;
        nbytes -= (size_t)written;
    }
}

void ls_screen_show(ls_screen *screen, const char *text) {
    char *frame = NULL;
    size_t nbytes = 0;
    int rows, columns, lines = 0;
    FILE *out = screen->shown ? open_memstream(&frame, &nbytes) : NULL;
    if (!out) return; /* not wanted; or no memory, which is no reason to stop */
    find_size(&rows, &columns);
    if (screen->lines > 0) fprintf(out, "\033[%dA", screen->lines);
    fputc('\r', out);
    for (; text[0] != '\0' && (lines < rows - 1 || lines == 0); lines++) {
        int length = (int)strcspn(text, "\n"), fitting = length < columns - 1 ? length : columns - 1;
        bool bold = screen->bold && lines == 0;
        fprintf(out, "%s%.*s%s\033[K\n", bold ? "\033[1m" : "", fitting, text, bold ? "\033[0m" : "");
        text += text[length] == '\n' ? length + 1 : length;
    }
    fputs("\033[J", out);
    if (fclose(out) == 0) {
        write_frame(frame, nbytes);
        screen->lines = lines;
    }
    free(frame);
}

void ls_screen_wipe(ls_screen *screen) {
    if (screen->lines > 0) ls_screen_show(screen, "");
}
