#include "common/base/status.h"

const char *ls_status_text(ls_status status) {
    switch (status) {
#define LS_CASE(name, value, exit_code, text)                                                                          \
    case LS_##name: return text;
        LS_STATUS_MAP(LS_CASE)
#undef LS_CASE
    }
    return "unknown status";
}

int ls_status_exit_code(ls_status status) {
    switch (status) {
#define LS_CASE(name, value, exit_code, text)                                                                          \
    case LS_##name: return exit_code;
        LS_STATUS_MAP(LS_CASE)
#undef LS_CASE
    }
    return 1;
}
