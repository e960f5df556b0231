/* Where this code lies, and what it was shipped with: a program, or the shared library that another program uses, in the
 * tree where it was built or below the PREFIX where it was installed. Both may be moved as a whole. */
#ifndef LS_BASE_SHIPPED_H
#define LS_BASE_SHIPPED_H

#include <stdbool.h>

#define LS_SHIPPED_PATH 1024

/* The folder of the program, or of liblockstep.so. False: it cannot be found out. */
bool ls_own_folder(char folder[LS_SHIPPED_PATH]);

/* Where a file of the project ("data/digits", "plots/tn_fit.gp") may lie, place 0, 1, ... LS_SHIPPED_PLACES - 1: in the current
 * folder; above ls_own_folder (of build/replay), or two above it (build/tests/test_x); in share/lockstep beside an installed
 * program's folder. False: there is no such place. */
enum { LS_SHIPPED_PLACES = 4 };
bool ls_shipped_place(char path[LS_SHIPPED_PATH], int place, const char *file);

/* The first of these places that has the file. False: none. */
bool ls_shipped_find(char path[LS_SHIPPED_PATH], const char *file);

#endif
