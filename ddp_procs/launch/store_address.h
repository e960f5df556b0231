/* The address of a store, as text and as a socket address: "unix:NAME", or a host and port of TCP. */
#ifndef DDP_LAUNCH_STORE_ADDRESS_H
#define DDP_LAUNCH_STORE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define DDP_HOST_CAPACITY 256

enum { DDP_PLACE_CAPACITY = DDP_HOST_CAPACITY + 8 };

/* The name behind "unix:"; empty for "unix" alone, NULL for a host of TCP. */
const char *ddp_address_socket_name(const char *host);

/* Whether the text is "localhost" or 127.x.y.z; no name is resolved. */
bool ddp_address_is_loopback(const char *host);

/* The first IPv4 address of a name, as text; false: it has none. */
enum { DDP_IPV4_CAPACITY = 16 };
bool ddp_address_resolve(const char *host, char address[DDP_IPV4_CAPACITY]);

/* The IPv4 address of this machine's network interface of that name; false: there is none, or it has none. */
bool ddp_address_of_interface(const char *name, char address[DDP_IPV4_CAPACITY]);

/* This machine's IPv4 address apart from loopback; false: it has none, or more than one. */
bool ddp_address_only(char address[DDP_IPV4_CAPACITY]);

/* For messages: "10.0.0.1 (eth0), 10.1.0.1 (ib0)", loopback apart; "none". Returns `text`. */
const char *ddp_address_list(char *text, size_t capacity);

/* For messages: "unix:NAME" or "host:port". */
void ddp_address_text(char text[DDP_PLACE_CAPACITY], const char *host, int port);

/* The Unix socket of that name in the abstract namespace; its length, 0 if the name is too long. */
socklen_t ddp_address_unix(struct sockaddr_un *address, const char *name);

#endif
