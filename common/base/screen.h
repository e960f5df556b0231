/* A block of lines on a terminal (stderr) that is redrawn in place, for what changes while a program runs.
 *
 *     ls_screen screen = ls_screen_begin(quiet);
 *     while (working) ls_screen_show(&screen, "step 12\ndevice 0 busy\n");
 *     ls_screen_wipe(&screen);
 *
 * The cursor stands below the block, where other lines may follow. Wipe the block before this process writes other
 * lines, and show it again after them. Nothing is shown if stderr is not a terminal or the terminal cannot move its
 * cursor (TERM=dumb). One thread at a time. */
#ifndef LS_BASE_SCREEN_H
#define LS_BASE_SCREEN_H

#include <stdbool.h>

typedef struct ls_screen {
    bool shown; /* stderr is a terminal that can move its cursor, and not `quiet` */
    bool bold;  /* show the first line in bold; false with NO_COLOR in the environment */
    int lines;  /* on the terminal now */
} ls_screen;

ls_screen ls_screen_begin(bool quiet);

/* The number of lines that fit now, at least 1: the terminal's height less the cursor's line. */
int ls_screen_rows(void);

/* Replaces the block by `text`, whose lines end with \n and hold ASCII only. Lines are truncated to the terminal's
 * width and height. One write(2), so that nothing flickers. */
void ls_screen_show(ls_screen *screen, const char *text);

/* Erases the block and leaves the cursor where the block began. */
void ls_screen_wipe(ls_screen *screen);

#endif
