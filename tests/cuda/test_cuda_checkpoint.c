/* Checkpoints of a GPU run: resumed there, they give the bits of a run without a break; and they travel between GPU
 * and CPU, with nothing lost. Each test is a process of its own. */
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/cuda/test.h"
#include "tests/cuda/gpu.h"
#include "tests/nn/models.h"
#include "tests/train/small_run.h"
#include "tests/train/trainer.h"

/* Trains to step `steps` and saves; `resume` may be NULL. */
static void run(ls_device *device, int64_t steps, const char *resume, const char *save) {
    const struct repetition small = {"", "mlp:784,16,10", 64, steps, LS_ADAM, 1e-3, 0};
    struct trainer t = trainer_open(&small, device);
    ls_train_result result;
    assert_int_equal(ls_model_init(t.model, resume ? 9 : 0), LS_OK);
    t.options.resume = resume;
    t.options.save = save;
    t.options.evaluate = false;
    stderr_begin();
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    stderr_end();
    assert_int_equal(result.steps, steps);
    trainer_close(&t);
}

static void a_gpus_checkpoint_goes_on_anywhere(NO_STATE) {
    ls_device *gpu = open_gpu((ls_device_options){0}), *cpu = open_device(0);
    run(gpu, 9, NULL, scratch_path("whole"));
    run(gpu, 4, NULL, scratch_path("part"));
    run(gpu, 9, scratch_path("part"), scratch_path("again"));
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    /* to a CPU device, which has nothing left to train, and back */
    run(cpu, 9, scratch_path("whole"), scratch_path("cpu"));
    assert_true(same_files(scratch_path("whole"), scratch_path("cpu")));
    run(gpu, 9, scratch_path("cpu"), scratch_path("back"));
    assert_true(same_files(scratch_path("whole"), scratch_path("back")));
    ls_device_close(gpu);
    close_empty_device(cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {APART(a_gpus_checkpoint_goes_on_anywhere, "")};
    return cmocka_run_group_tests_name("cuda_checkpoint", tests, NULL, NULL);
}
