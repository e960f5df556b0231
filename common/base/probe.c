/* skeleton */
#include "common/base/probe.h"
_Atomic bool ls_probe_is_on;

void ls_probe_stop(void) {}
struct ls_probe_record ls_probe_begin(ls_probe_kind kind, const char *label) {
    (void)kind;
    (void)label;
    return (struct ls_probe_record){0};
}
void ls_probe_end(struct ls_probe_record *record) { (void)record; }
void ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number) {
    (void)kind;
    (void)label;
    (void)object;
    (void)number;
}
void ls_probe_phase(const char *phase) { (void)phase; }
void ls_probe_step(int32_t step) { (void)step; }
void ls_probe_name_thread(const char *name) { (void)name; }
ls_status ls_probe_read(const struct ls_probe_thread **threads, size_t *count) {
    (void)threads;
    (void)count;
    return LS_ERR_UNSUPPORTED;
}
uint64_t ls_probe_lost(void) { return 0; }
void ls_probe_drop(void) {}
