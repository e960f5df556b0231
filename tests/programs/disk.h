/* A small disk for a test, visible only to this process and its programs. */
#ifndef TESTS_PROGRAMS_DISK_H
#define TESTS_PROGRAMS_DISK_H

/* Mounts an empty one in a new folder of the scratch folder; `size` as "size=248k". Skips the test if this process may
 * not mount. Returns its path, valid until the next call. */
const char *disk_mount(const char *name, const char *size);

/* Makes every later write to it fail (EROFS), as soon as no file is open for writing there. */
void disk_make_read_only(const char *path);

/* Fills the disk to the last byte. */
void disk_fill(const char *path);

void disk_unmount(const char *path);

#endif
