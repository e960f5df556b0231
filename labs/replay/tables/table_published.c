/* Table 5: machines that others measured. T1, one device's step, calibrates a node's rates; all else of a node is
 * from its sources; and what N > 1 devices take is predicted. "Communication is free" (T_N = T1) is what a prediction
 * must beat: by half of its error, on step times and on the time that goes beyond T1, with the order of all rows right.
 *
 * Five scenes, each in a file of its own: rather large networks with buckets and overlap; one whose gradients are the
 * whole of the problem; a small one; one of many small operations, whose launches the interpreter's one lock lets
 * through one by one; and a message without contents. */
#include "labs/replay/tables/scenes.h"

ls_status tables_make_published(tables_book *book, const tables_settings *settings) {
    static ls_status (*const scenes[])(tables_book *, const published *) = {scene_resnets, scene_buckets, scene_cifar,
                                                                            scene_lock, scene_latency};
    (void)settings; /* it takes a second */
    published p;
    ls_status status = published_open(&p, "published");
    if (status != LS_OK) return status;
    tables_text(
        book,
        "What is an input is not predicted. Figures of one device set a node's rates and its costs beside computing. "
        "All-reduce times and latencies that were measured by themselves set its links. No step of more than one "
        "device "
        "is an input. (A latency needs two ranks, so those of N = 2 and 3 are inputs of its scene.)");
    for (size_t i = 0; status == LS_OK && i < sizeof scenes / sizeof *scenes; i++) status = scenes[i](book, &p);
    published_close(&p);
    return status;
}
