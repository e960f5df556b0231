/* safetensors_crc32 — a file's checksum, which lies in the file: in its metadata, where eight digits are replaced when
 * all else is known. In JSON text a quote within a name or a value has a backslash before it, so the key with its
 * quotes occurs where it is a key only. */
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
    return nbytes == 0 ? crc : (uint32_t)crc32_z(crc, bytes, nbytes); /* zlib begins anew where there are no bytes */
}
