/* A data set whose images are small, so that convolutions on it take a twelfth of the time that they take on
 * data/digits. */
#ifndef TESTS_PROGRAMS_SMALL_IMAGES_H
#define TESTS_PROGRAMS_SMALL_IMAGES_H

#include <stddef.h>

enum { SMALL_IMAGES_MOST = 160 }; /* of a split */

/* Writes images of 8 x 8 random bytes with 10 classes, in MNIST's format, to the folder of that name in the test's
 * folder. A larger data set begins with the samples of a smaller one. Returns the folder's path (scratch_path). */
const char *small_images(const char *name, size_t train, size_t test);

#endif
