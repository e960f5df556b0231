/* Finds the folder of this code and the data files shipped with it. The code is a program or the shared library of
 * another program, in the build tree or below an installation PREFIX; either may be moved as a whole. */
#ifndef LS_BASE_SHIPPED_H
#define LS_BASE_SHIPPED_H

#include <stdbool.h>

#define LS_SHIPPED_PATH 1024

/* The folder of the program, or of liblockstep.so. False: unknown. */
bool ls_own_folder(char folder[LS_SHIPPED_PATH]);

/* The candidate paths of a file of the project ("data/digits", "plots/tn_fit.gp"), `place` = 0 .. LS_SHIPPED_PLACES -
 * 1: in the current folder; in the parent of ls_own_folder (for build/replay) or its grandparent (for
 * build/tests/test_x); in share/lockstep next to an installed program's folder. False: no such candidate. */
enum { LS_SHIPPED_PLACES = 4 };
bool ls_shipped_place(char path[LS_SHIPPED_PATH], int place, const char *file);

/* The first candidate that exists. False: none. */
bool ls_shipped_find(char path[LS_SHIPPED_PATH], const char *file);

#endif
