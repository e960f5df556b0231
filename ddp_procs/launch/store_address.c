#define _GNU_SOURCE
#include "ddp_procs/launch/store_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
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

static void write_ipv4(char text[DDP_IPV4_CAPACITY], const struct sockaddr *address) {
    inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, DDP_IPV4_CAPACITY);
}

bool ddp_address_resolve(const char *host, char address[DDP_IPV4_CAPACITY]) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) return false;
    write_ipv4(address, found->ai_addr);
    freeaddrinfo(found);
    return true;
}

bool ddp_address_of_interface(const char *name, char address[DDP_IPV4_CAPACITY]) {
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0) return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        found = i->ifa_addr && i->ifa_addr->sa_family == AF_INET && strcmp(i->ifa_name, name) == 0;
        if (found) write_ipv4(address, i->ifa_addr);
    }
    freeifaddrs(all);
    return found;
}

/* Writes all addresses except loopback in the form of ddp_address_list, and the last one; returns their number. */
static int list_addresses(char *text, size_t capacity, char last[DDP_IPV4_CAPACITY]) {
    struct ifaddrs *all = NULL;
    size_t used = 0;
    int count = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char address[DDP_IPV4_CAPACITY];
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        write_ipv4(address, i->ifa_addr);
        if (ddp_address_is_loopback(address)) continue;
        memcpy(last, address, sizeof address);
        if (used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s (%s)", count > 0 ? ", " : "", address,
                                     i->ifa_name);
        count++;
    }
    freeifaddrs(all);
    return count;
}

bool ddp_address_only(char address[DDP_IPV4_CAPACITY]) {
    char text[64];
    return list_addresses(text, sizeof text, address) == 1;
}

const char *ddp_address_list(char *text, size_t capacity) {
    char last[DDP_IPV4_CAPACITY];
    snprintf(text, capacity, "none");
    (void)list_addresses(text, capacity, last);
    return text;
}

void ddp_address_text(char text[DDP_PLACE_CAPACITY], const char *host, int port) {
    if (ddp_address_socket_name(host))
        snprintf(text, DDP_PLACE_CAPACITY, "%s", host);
    else
        snprintf(text, DDP_PLACE_CAPACITY, "%s:%d", host, port);
}

/* The leading null byte makes the name abstract: it is not in the file system, and ends with the last socket bound to
 * it. */
socklen_t ddp_address_unix(struct sockaddr_un *address, const char *name) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t capacity = sizeof address->sun_path - 1;
    int length = snprintf(address->sun_path + 1, capacity, "lockstep_store_%s", name);
    if (length < 0 || (size_t)length >= capacity) return 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
