/* build_id — an ELF note in memory. dl_iterate_phdr lists the loaded objects; notes are in a segment of each. */
#define _GNU_SOURCE
#include "common/base/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct search {
    const char *library;
    char *text;
};

static size_t padded(size_t nbytes, size_t alignment) { return (nbytes + alignment - 1) / alignment * alignment; }

static void write_digits(char *text, const uint8_t *bytes, size_t count) {
    if (count > (LS_BUILD_ID_CAPACITY - 1) / 2) count = (LS_BUILD_ID_CAPACITY - 1) / 2;
    for (size_t i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Whether the segment contains the build id. */
static bool read_notes(const uint8_t *at, size_t nbytes, size_t alignment, char *text) {
    static const char owner[] = "GNU";
    ElfW(Nhdr) note;
    while (nbytes >= sizeof note) {
        memcpy(&note, at, sizeof note);
        size_t name = sizeof note, id = name + padded(note.n_namesz, 4);
        size_t next = padded(id + note.n_descsz, alignment);
        if (id + note.n_descsz > nbytes) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof owner &&
            memcmp(at + name, owner, sizeof owner) == 0) {
            write_digits(text, at + id, note.n_descsz);
            return true;
        }
        if (next >= nbytes) return false;
        at += next;
        nbytes -= next;
    }
    return false;
}

/* The program is the first object, and has no name. A result other than 0 ends the iteration. */
static int look_at(struct dl_phdr_info *object, size_t size, void *context) {
    (void)size;
    const struct search *search = context;
    const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
    if (search->library && strcmp(name, search->library) != 0) return 0;
    snprintf(search->text, LS_BUILD_ID_CAPACITY, "unknown");
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_NOTE) continue;
        const uint8_t *notes = (const uint8_t *)(object->dlpi_addr + segment->p_vaddr);
        if (read_notes(notes, segment->p_memsz, segment->p_align == 8 ? 8 : 4, search->text)) break;
    }
    return 1;
}

const char *ls_build_id(char text[LS_BUILD_ID_CAPACITY], const char *library) {
    struct search search = {library, text};
    snprintf(text, LS_BUILD_ID_CAPACITY, "not loaded");
    dl_iterate_phdr(look_at, &search);
    return text;
}
