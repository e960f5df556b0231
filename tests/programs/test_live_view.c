/* The live view, on a simulated terminal: its contents during training, and that nothing of it is left. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

/* --- a terminal that interprets a view's sequences ------------------------------------------------------------------ */

/* A program, and its expected view. */
struct view {
    const char *line, *environment;
    int rows, columns;
    const char *texts[8]; /* all on one screen at some time; none: nothing is written to the terminal */
};

enum { ROWS_MAX = 80, COLUMNS_MAX = 200 };

struct terminal {
    int fd, rows, columns;
    char cells[ROWS_MAX][COLUMNS_MAX + 1];
    int row, column;
    int frames;      /* the number of times the block was drawn: "erase below" */
    char escape[16]; /* the incomplete sequence */
    size_t escape_nbytes;
    bool bold, wrapped;
    const struct view *view;
    bool seen; /* a frame had all of the view's texts */
};

static bool shows(const struct terminal *t, const char *text) {
    for (int r = 0; r < t->rows; r++) {
        if (strstr(t->cells[r], text)) return true;
    }
    return false;
}

static bool shows_all(const struct terminal *t, const struct view *view) {
    for (int i = 0; view->texts[i]; i++) {
        if (!shows(t, view->texts[i])) return false;
    }
    return true;
}

static void erase(struct terminal *t, int row, int column) {
    memset(t->cells[row] + column, ' ', (size_t)(t->columns - column));
}

static void scroll(struct terminal *t) {
    for (int r = 1; r < t->rows; r++) memcpy(t->cells[r - 1], t->cells[r], sizeof t->cells[0]);
    erase(t, t->rows - 1, 0);
}

/* Executes the allowed sequences; any other fails the test. */
static void obey(struct terminal *t) {
    const char *end = t->escape + t->escape_nbytes - 1;
    int number = atoi(t->escape + 1);
    switch (*end) {
    case 'A':
        if (number < 1 || number > t->row) fail_msg("up %d from row %d", number, t->row);
        t->row -= number;
        break;
    case 'K': erase(t, t->row, t->column); break;
    case 'J':
        erase(t, t->row, t->column);
        for (int r = t->row + 1; r < t->rows; r++) erase(t, r, 0);
        t->frames++;
        t->seen = t->seen || (t->view->texts[0] && shows_all(t, t->view));
        break;
    case 'm': t->bold = t->bold || number == 1; break;
    default: fail_msg("the escape sequence %s", t->escape);
    }
}

static void put_char(struct terminal *t, char c) {
    if (t->escape_nbytes > 0) {
        assert_true(t->escape_nbytes < sizeof t->escape - 1);
        t->escape[t->escape_nbytes++] = c;
        t->escape[t->escape_nbytes] = '\0';
        if (c == '[' || (c >= '0' && c <= '9')) return;
        memmove(t->escape, t->escape + 1, t->escape_nbytes); /* without the escape character */
        t->escape_nbytes--;
        obey(t);
        t->escape_nbytes = 0;
    } else if (c == '\033') {
        t->escape[t->escape_nbytes++] = c;
    } else if (c == '\r') {
        t->column = 0;
    } else if (c == '\n') {
        if (t->row == t->rows - 1)
            scroll(t);
        else
            t->row++;
    } else {
        if (t->column == t->columns) {
            t->wrapped = true;
            t->column = 0;
            put_char(t, '\n');
        }
        t->cells[t->row][t->column++] = c;
    }
}

static void terminal_open(struct terminal *t, int *other_end, const struct view *view) {
    *t = (struct terminal){.rows = view->rows, .columns = view->columns, .view = view};
    struct winsize size = {.ws_row = (unsigned short)view->rows, .ws_col = (unsigned short)view->columns};
    for (int r = 0; r < view->rows; r++) erase(t, r, 0);
    assert_int_equal(openpty(&t->fd, other_end, NULL, NULL, &size), 0);
    fcntl(t->fd, F_SETFD, FD_CLOEXEC);
}

static void terminal_read(struct terminal *t, int timeout_ms) {
    char text[4096];
    struct pollfd wait = {.fd = t->fd, .events = POLLIN};
    if (poll(&wait, 1, timeout_ms) <= 0) return;
    ssize_t got = read(t->fd, text, sizeof text);
    for (ssize_t i = 0; i < got; i++) put_char(t, text[i]);
}

static bool is_empty(const struct terminal *t) {
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            if (t->cells[r][c] != ' ' && t->cells[r][c] != '\0') return false;
        }
    }
    return t->row == 0 && t->column == 0;
}

static void print_screen(const struct terminal *t) {
    for (int r = 0; r < t->rows; r++) fprintf(stderr, "|%.*s|\n", t->columns, t->cells[r]);
}

/* --- a program on it ------------------------------------------------------------------------------------------------- */

static void run_view(const struct view *view, struct terminal *t, program *p) {
    siginfo_t end = {0};
    double until_us = ls_now_us() + PROGRAM_DEADLINE_S * 1e6;
    int open_end; /* the program's stderr; its stdout is a file */
    terminal_open(t, &open_end, view);
    program_start(p, "STDERR=%s %s %s", ttyname(open_end), view->environment, view->line);
    while (waitid(P_PID, (id_t)p->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != p->pid &&
           ls_now_us() < until_us) {
        terminal_read(t, 20);
    }
    program_finish(p);
    for (int i = 0; i < 10; i++) terminal_read(t, 5); /* the rest of the terminal's buffer */
    close(open_end);
    close(t->fd);
    if (view->texts[0] && !t->seen && p->status == 0) {
        print_screen(t);
        fail_msg("%s never shows '%s' and the other texts (%d frames)", view->line, view->texts[0], t->frames);
    }
}

#define SMALL "--model mlp:784,32,10"

TEST_IN(programs, test_the_view_shows_all_devices_and_vanishes) {
    static const struct view views[] = {
        {"dp_train " SMALL " --devices 3 --steps 40 --metrics /dev/null",
         "TERM=xterm",
         24,
         80,
         {"/40  epoch ", " samples/s", "device", "communication", "     0  ", "     1  ", "     2  "}},
        {"dp_train --single --steps 40 --metrics /dev/null",
         "TERM=xterm",
         24,
         80,
         {"/40  epoch ", " ms a step", "     0  ", " MiB"}},
        {"ddp_train " SMALL " --spawn 3 --batch-size 66 --steps 40 --metrics /dev/null",
         "TERM=xterm",
         24,
         80,
         {"/40  epoch ", "rank  device ", "   0       0  ", "   1       1  ", "   2       2  "}},
        {"ddp_train " SMALL " --steps 40 --metrics /dev/null", "TERM=xterm", 24, 80, {"/40  epoch ", "     0  "}},
        /* more devices than lines, and lines wider than the terminal */
        {"dp_train " SMALL " --devices 64 --steps 4 --metrics /dev/null",
         "TERM=xterm",
         10,
         30,
         {"step ", "device", "     5  ", "and 58 more devices"}},
        {"dp_train " SMALL " --devices 2 --steps 40 --metrics /dev/null", "TERM=xterm", 2, 5, {"step"}},
    };
    static struct terminal t;
    static program p;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        run_view(&views[i], &t, &p);
        assert_int_equal(p.status, 0);
        assert_true(t.bold && !t.wrapped);
        assert_non_null(strstr(p.out_text, "final loss"));
        assert_null(strchr(p.out_text, '\033'));
        if (!is_empty(&t)) {
            print_screen(&t);
            fail_msg("%s leaves something on the terminal", views[i].line);
        }
    }
}

TEST_IN(programs, test_nobody_asked_for_a_view) {
    static const struct view views[] = {
        {"dp_train " SMALL " --devices 2 --steps 40 --quiet --metrics /dev/null", "TERM=xterm", 24, 80, {NULL}},
        {"ddp_train " SMALL " --spawn 2 --steps 40 --quiet --metrics /dev/null", "TERM=xterm", 24, 80, {NULL}},
        {"dp_train " SMALL " --devices 2 --steps 3 --metrics /dev/null", "TERM=dumb", 24, 80, {NULL}},
        {"dp_train " SMALL " --devices 2 --steps 40 --summary -", "TERM=xterm", 24, 80, {NULL}},
    };
    static struct terminal t;
    static program p;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        run_view(&views[i], &t, &p);
        assert_int_equal(p.status, 0);
        assert_true(is_empty(&t) && t.frames == 0);
    }
    /* not a terminal: nothing, see test_good_runs; without colours: no bold line */
    static const struct view plain = {"dp_train " SMALL " --devices 2 --steps 40 --metrics /dev/null",
                                      "TERM=xterm NO_COLOR=1",
                                      24,
                                      80,
                                      {"device", "     1  "}};
    run_view(&plain, &t, &p);
    assert_true(p.status == 0 && t.frames > 0 && !t.bold);
}

/* After a failure the last frame stays, with the error lines below it. */
TEST_IN(programs, test_errors_stand_below_the_view) {
    static const struct view views[] = {
        {"dp_train " SMALL " --devices 2 --lr 1e30 --metrics /dev/null",
         "TERM=xterm",
         24,
         200,
         {"step 1/", "error: step 1 (epoch 0): the loss is nan"}},
        {"ddp_train " SMALL " --spawn 2 --lr 1e30 --metrics /dev/null",
         "TERM=xterm",
         24,
         200,
         {"step 1/", "error: step 1 (epoch 0): the loss is nan", "has given up: step 1",
          "exited with status 1: step 1"}},
    };
    static struct terminal t;
    static program p;
    for (size_t i = 0; i < 2; i++) {
        run_view(&views[i], &t, &p);
        assert_int_equal(p.status, 1);
        assert_true(shows_all(&t, &views[i]));
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
