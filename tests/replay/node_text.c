#include "tests/replay/node_text.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/base/test.h"

char node_message[2048];

ls_status node_parse(ls_node **node, const char *text) {
    node_message[0] = '\0';
    ls_log_sink sink = ls_log_capture(node_message, sizeof node_message);
    ls_status status = ls_node_parse(node, "dir/n.json", text, strlen(text));
    ls_log_restore(sink);
    assert_true((status == LS_OK) == (*node != NULL));
    return status;
}

ls_status node_parse_replaced(ls_node **node, const char *what, const char *by) {
    char text[8192];
    const char *place = strstr(NODE, what);
    assert_non_null(place);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(place - NODE), NODE, by, place + strlen(what));
    return node_parse(node, text);
}
