#include "tests/launch/store_fixture.h"

#include <stdlib.h>

int store_set_up(void **state) {
    store_fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!f || ddp_store_serve(&f->server, "localhost", 0) != LS_OK) return -1;
    f->port = ddp_store_server_port(f->server);
    return ddp_store_connect(&f->store, "localhost", f->port, 30) == LS_OK ? 0 : -1;
}

int store_tear_down(void **state) {
    store_fixture *f = *state;
    ddp_store_close(f->store);
    ddp_store_server_stop(f->server, 0);
    free(f);
    return 0;
}
