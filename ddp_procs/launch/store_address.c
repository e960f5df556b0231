#define _GNU_SOURCE
#include "ddp_procs/launch/store_address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

const char *ddp_address_socket_name(const char *host) {
    static const char prefix[] = "unix:";
    if (strcmp(host, "unix") == 0) return "";
    return strncmp(host, prefix, sizeof prefix - 1) == 0 ? host + sizeof prefix - 1 : NULL;
}

bool ddp_address_is_loopback(const char *host) {
    struct in_addr address;
    if (strcmp(host, "localhost") == 0) return true;
    return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

void ddp_address_text(char text[DDP_PLACE_CAPACITY], const char *host, int port) {
    if (ddp_address_socket_name(host))
        snprintf(text, DDP_PLACE_CAPACITY, "%s", host);
    else
        snprintf(text, DDP_PLACE_CAPACITY, "%s:%d", host, port);
}

/* The zero byte in front makes the name abstract: it is in no folder, and gone with the last socket that has it. */
socklen_t ddp_address_unix(struct sockaddr_un *address, const char *name) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t capacity = sizeof address->sun_path - 1;
    int length = snprintf(address->sun_path + 1, capacity, "lockstep_store_%s", name);
    if (length < 0 || (size_t)length >= capacity) return 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
