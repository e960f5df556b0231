/* All-reduces in two slices (common/comm/exchange.h). */
#ifndef LABS_03_ALLREDUCE_SLICES_H
#define LABS_03_ALLREDUCE_SLICES_H

#include <stdbool.h>

/* From now on messages of more than one round are sent in two slices, or whole again. Call while no rank runs. */
void slices_use(bool two);

#endif
