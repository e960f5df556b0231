/* safetensors_crc32 — a file's checksum, which is part of the file's metadata: eight digits that are replaced when all
 * else is known. In JSON text a quote within a name or a value is escaped, so the key with its quotes occurs only as a
 * key. */
#include <string.h>
#include <zlib.h>

#include "common/checkpoint/safetensors_internal.h"

char *ls_safetensors_crc32_digits(char *header) {
    static const char key[] = "\"" LS_SAFETENSORS_CRC32 "\":\"";
    char *at = strstr(header, key);
    if (!at) return NULL;
    at += sizeof key - 1;
    return strspn(at, "0123456789abcdef") == LS_SAFETENSORS_CRC32_CHARS ? at : NULL;
}

uint32_t ls_crc32(uint32_t crc, const void *bytes, size_t nbytes) {
    return nbytes == 0 ? crc : (uint32_t)crc32_z(crc, bytes, nbytes); /* without bytes zlib may start a new sum */
}
