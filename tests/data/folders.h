/* Small data folders of each layout, in the scratch folder. */
#ifndef TESTS_DATA_FOLDERS_H
#define TESTS_DATA_FOLDERS_H

#include <stddef.h>

/* CIFAR records: byte i of sample s is (7 s + i) mod 256, halved in channel 1 and quartered in channel 2; the label is
 * s mod `classes`, after a coarse label of 0 if label_nbytes is 2; s counts from `first`. nbytes 0: the whole file,
 * else that many bytes. */
void folders_write_records(const char *name, int first, int count, int label_nbytes, int classes, size_t nbytes);

/* 15 training samples in five files, 3 test samples. */
void folders_write_cifar10(void);

/* PREFIX-images-idx4-ubyte of count x 2 x 1 x 3 bytes 0, 1, 2, ... and labels 0, 1, 2, ... */
void folders_write_idx4(const char *prefix, int count);

/* A .npy file of version 1.0, as numpy.save writes it. */
void folders_write_npy(const char *name, const char *descr, const char *shape, const void *data, size_t nbytes);

/* Writes the data, `times` times in a row, gzipped. */
void folders_gzip(const char *name, const void *data, size_t nbytes, int times);

#endif
