/* A block of lines on a terminal (stderr) that is redrawn in place, for what changes while a program runs.
 *
 *     ls_screen screen = ls_screen_begin(quiet);
 *     while (working) ls_screen_show(&screen, "step 12\ndevice 0 busy\n");
 *     ls_screen_wipe(&screen);
 *
 * The cursor stands below the block, where other lines may follow; wipe the block before this process writes some, and
 * show it again after them. What is not a terminal, or cannot move its cursor (TERM=dumb), gets nothing. One thread at
 * a time. */
#ifndef LS_BASE_SCREEN_H
#define LS_BASE_SCREEN_H

#include <stdbool.h>

typedef struct ls_screen {
    bool shown; /* stderr is a terminal that can, and nobody asked for quiet */
    bool bold;  /* the first line; not with NO_COLOR in the environment */
    int lines;  /* that stand on the terminal now */
} ls_screen;

ls_screen ls_screen_begin(bool quiet);

/* Lines that a block may have now, at least 1: the terminal's height without the cursor's line. */
int ls_screen_rows(void);

/* Replaces the block by `text`, whose lines end with \n and hold ASCII only. They are cut to the terminal's width and
 * height. One write(2), so that nothing flickers. */
void ls_screen_show(ls_screen *screen, const char *text);

/* Takes the block away; the cursor stands where it began. */
void ls_screen_wipe(ls_screen *screen);

#endif
