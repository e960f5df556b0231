#define _GNU_SOURCE
#include "common/base/secret.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"

ls_status ls_secret_make(char *text, size_t digits) {
    unsigned char bytes[32];
    size_t nbytes = digits / 2;
    if (getrandom(bytes, nbytes, 0) != (ssize_t)nbytes)
        return ls_fail(LS_ERR_SYSTEM, "cannot get random bytes: %s", strerror(errno));
    for (size_t i = 0; i < nbytes; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return LS_OK;
}

bool ls_secret_equal(const void *left, const void *right, size_t nbytes) {
    const volatile unsigned char *l = left, *r = right; /* volatile: the compiler may not stop early either */
    unsigned char differences = 0;
    for (size_t i = 0; i < nbytes; i++) differences |= l[i] ^ r[i];
    return differences == 0;
}

bool ls_peer_is_own_user(int fd) {
    struct ucred peer;
    socklen_t nbytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) == 0 && peer.uid == geteuid();
}
