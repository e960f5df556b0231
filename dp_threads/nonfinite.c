/* nonfinite — finds the replica in which a NaN or an infinity first appeared.
 *   order : replicas in order, each searched in the order of its computation. Their parameters are copies of device
 *           0's, so a bad parameter is found on device 0; a bad sample or output on the device that has its piece */
#include <stdio.h>
#include <string.h>

#include "dp_threads/dp.h"

ls_status dp_find_nonfinite(ls_parallel *p, char *place, size_t capacity) {
    struct dp *dp = dp_of(p);
    ls_status status = LS_OK;
    place[0] = '\0';
    for (int i = 0; status == LS_OK && place[0] == '\0' && i < dp->active; i++) {
        status = ls_model_find_nonfinite(dp->replicas[i].model, place, capacity);
        size_t length = strlen(place);
        if (length > 0) {
            snprintf(place + length, capacity - length, " on device %d", ls_device_index(dp->replicas[i].device));
        }
    }
    return status;
}
