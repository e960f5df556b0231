/* A small disk of a test's own, which only this process and its programs see. */
#ifndef TESTS_PROGRAMS_DISK_H
#define TESTS_PROGRAMS_DISK_H

/* Mounts an empty one in a new folder of the scratch folder; `size` as "size=248k". Skips the test where this process may
 * not mount. Returns its path, valid until the next call. */
const char *disk_mount(const char *name, const char *size);

/* Every later write to it fails (EROFS), as soon as no file is open for writing there. */
void disk_make_read_only(const char *path);

/* Takes all that is left, so that there is no room for another byte. */
void disk_fill(const char *path);

void disk_unmount(const char *path);

#endif
