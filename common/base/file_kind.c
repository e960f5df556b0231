#include "common/base/file_kind.h"

#include <string.h>

#define KIND(magic, words)                                                                                             \
    { magic, sizeof magic - 1, words }

static const struct {
    const char *magic;
    size_t nbytes;
    const char *words;
} kinds[] = {
    KIND("PK\x03\x04", "a zip archive, as torch.save (.pt, .pth) and NumPy (.npz) write"),
    KIND("\x80\x02", "a pickle, as old versions of torch.save (.pt, .pth) write"),
    KIND("\x93NUMPY", "a NumPy array (.npy)"),
    KIND("\x1f\x8b", "a gzip file"),
    KIND("\x89HDF\r\n\x1a\n", "an HDF5 file (.h5)"),
    KIND("\x89PNG\r\n\x1a\n", "a PNG picture"),
    KIND("\xff\xd8\xff", "a JPEG picture"),
    KIND("GGUF", "a GGUF model"),
    KIND("%PDF-", "a PDF document"),
    KIND("\x7f"
         "ELF",
         "a program"),
};

const char *ls_file_kind(const void *begin, size_t nbytes) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (nbytes >= kinds[i].nbytes && memcmp(begin, kinds[i].magic, kinds[i].nbytes) == 0) return kinds[i].words;
    return NULL;
}
