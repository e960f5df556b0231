/* skeleton */
#include "common/replay/fit.h"

const char *ls_law_name(ls_law law) {
    (void)law;
    return NULL;
}
const char *ls_law_formula(ls_law law) {
    (void)law;
    return NULL;
}
ls_status ls_fit_law(struct ls_fit *fit, ls_law law, const struct ls_fit_point *points, size_t count) {
    (void)fit;
    (void)law;
    (void)points;
    (void)count;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_fit_all(struct ls_fit fits[LS_LAW_COUNT], size_t *fit_count, const struct ls_fit_point *points,
                     size_t count) {
    (void)fits;
    (void)fit_count;
    (void)points;
    (void)count;
    return LS_ERR_UNSUPPORTED;
}
double ls_fit_ms(const struct ls_fit *fit, double n) {
    (void)fit;
    (void)n;
    return 0;
}
