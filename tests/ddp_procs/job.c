#include "tests/ddp_procs/job.h"

struct plan job_plan(const char *model, int ranks, size_t batch, size_t samples) {
    struct plan plan = {.mode = MODE_DDP,
                        .devices = ranks,
                        .model = model,
                        .batch = batch,
                        .samples = samples,
                        .steps = 6,
                        .allreduce = "direct"};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.learning_rate = 0.01;
    return plan;
}

void job_open(struct rank *rank, struct job *job, struct plan plan, ls_comm *comm) {
    *job = (struct job){.plan = plan};
    ls_set_wait_timeout_s(2 * PLAN_TIMEOUT_S);
    CHECK(plan_groups_open(&job->plan, rank, comm) == LS_OK);
    CHECK(session_open(&job->session, &job->plan, job->plan.groups.job) == LS_OK);
    const ls_parallel *p = job->session.parallel;
    CHECK(samples_make(&job->samples, &job->plan, job->session.model, p->data_rank, p->data_size));
}

void job_step(const struct rank *rank, struct job *job, size_t k) {
    CHECK(session_step(&job->session, &job->samples.batches[k]) == LS_OK);
    CHECK(session_synchronize(&job->session) == LS_OK);
}

void job_gradients(const struct rank *rank, struct job *job, size_t k) {
    CHECK(ls_step_gradients(job->session.parallel, &job->samples.batches[k]) == LS_OK);
    CHECK(session_synchronize(&job->session) == LS_OK);
}

void job_close(const struct rank *rank, struct job *job) {
    struct session *s = &job->session;
    ls_memory_report memory;
    samples_free(&job->samples);
    s->parallel->ops->destroy(s->parallel);
    ls_model_destroy(s->model);
    ls_device_memory(s->devices[0], &memory);
    CHECK(memory.current_total_bytes == 0);
    ls_device_close(s->devices[0]);
    plan_groups_close(&job->plan.groups);
}
