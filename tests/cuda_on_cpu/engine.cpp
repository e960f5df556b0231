/* The engine: one thread that runs items, and how host threads wait for them.
 *   terms : an item follows others (the one before it in its stream, those whose events its stream waits for); it is
 *           ready when all of them are done. A stream is just the last item enqueued on it, and an event just a pointer
 *           to an item
 *   eager : ready items run first come, first served, as soon as possible
 *   shuffle : items run only while a host thread waits (or a few of them when one queries), in random order: every
 *           order that streams and events allow can occur, and if a wait is missing, a read sooner or later precedes
 *           the write. The same seed and the same calls of one host thread give the same order
 *   later : an item that cannot continue becomes ready again; when none can, the engine sleeps briefly
 *   rights : device memory is open while items run. It is closed when a host thread returns from a wait and nothing is
 *           left to run (shuffle: nothing may run), so that a later access by a host thread is caught
 *   broken: items enqueued on a device whose context is broken are done at once, without their work
 * Speed matters little here: one lock guards everything except the work itself. */
#include <algorithm>
#include <chrono>
#include <csignal>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

constexpr std::chrono::microseconds NOTHING_GOES_ON{50};

thread_local bool engine_thread = false;
thread_local int running_device = 0;

double now_ms() {
    std::chrono::duration<double, std::milli> since = std::chrono::steady_clock::now().time_since_epoch();
    return since.count();
}

bool may_run(const State &s) { return !s.ready.empty() && (!s.settings.shuffle || s.waits > 0 || s.allowance > 0); }

ItemRef take(State &s) {
    if (s.settings.shuffle) std::swap(s.ready.front(), s.ready[next_random(s) % s.ready.size()]);
    ItemRef item = s.ready.front();
    s.ready.pop_front();
    return item;
}

void finish(State &s, Item &item) {
    item.done = true;
    item.done_ms = now_ms();
    item.task.work = nullptr;
    s.waits -= item.waiters;
    for (ItemRef &follower : item.followers) {
        if (--follower->follows == 0) s.ready.push_back(follower);
    }
    item.followers.clear();
    s.changed.notify_all();
}

/* Call with the lock held, as it is on return; the work itself runs without it. */
Progress run(State &s, Guard &guard, Item &item) {
    cudaError_t &broken = s.devices[static_cast<size_t>(item.task.device)].broken;
    if (broken == cudaSuccess && item.fails != cudaSuccess) broken = item.fails;
    if (broken != cudaSuccess || !item.task.work) return Progress::done;
    if (item.task.kind == Kind::host_function) {
        s.arena->close();
    } else {
        s.arena->open();
    }
    running_device = item.task.device;
    s.running = true;
    guard.unlock();
    Progress progress = item.task.work();
    guard.lock();
    s.running = false;
    return progress;
}

/* Signals are for the host threads to handle. */
void block_signals() {
    sigset_t signals;
    sigfillset(&signals);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, own);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void run_items(State &s) {
    engine_thread = true;
    block_signals();
    Guard guard(s.lock);
    while (!s.stop) {
        if (!may_run(s)) {
            s.changed.notify_all();
            s.wake.wait(guard);
            continue;
        }
        ItemRef item = take(s);
        if (s.allowance > 0 && --s.allowance == 0) s.changed.notify_all(); /* a query does not wait for more */
        if (run(s, guard, *item) == Progress::done) {
            s.idle_turns = 0;
            finish(s, *item);
            continue;
        }
        s.ready.push_back(item);
        if (++s.idle_turns < 2 * s.ready.size()) continue;
        s.idle_turns = 0;
        s.allowance = 0;
        s.changed.notify_all();
        guard.unlock();
        std::this_thread::sleep_for(NOTHING_GOES_ON);
        guard.lock();
    }
}

/* The device that the calling thread's work runs on. */
int own_device() { return engine_thread ? running_device : current_device(); }

} // namespace

bool on_engine_thread() { return engine_thread; }

void stop_engine(State &s) {
    {
        Guard guard(s.lock);
        s.stop = true;
        s.wake.notify_all();
    }
    if (s.thread.joinable()) s.thread.join();
}

ItemRef add_item(State &s, Task task, const std::vector<ItemRef> &after) {
    auto item = std::make_shared<Item>();
    item->task = std::move(task);
    for (const ItemRef &before : after) {
        if (!before || before->done) continue;
        before->followers.push_back(item);
        item->follows++;
    }
    if (item->follows == 0) {
        s.ready.push_back(item);
        s.wake.notify_one();
    }
    if (!s.thread.joinable()) s.thread = std::thread(run_items, std::ref(s));
    return item;
}

/* Called when a kernel is launched: the nth may be one that fails. */
void count_kernel(State &s, Item &item) {
    s.kernels++;
    item.fails = count_call(s, "kernel");
}

/* Closes device memory when the host continues, if possible. */
void close_if_idle(State &s, Guard &guard) {
    while (s.settings.shuffle && s.running && s.waits == 0 && s.allowance == 0) s.changed.wait(guard);
    if (!s.running && !may_run(s)) s.arena->close();
}

void wait_for(State &s, Guard &guard, const ItemRef &item) {
    if (!item) return;
    if (!item->done) {
        item->waiters++;
        s.waits++;
        s.wake.notify_one();
        while (!item->done) s.changed.wait(guard);
    }
    close_if_idle(s, guard);
}

/* A query: in shuffle mode a few items may run, fewer if `goal` is done before; in eager mode they run anyway. */
void let_run(State &s, Guard &guard, const ItemRef &goal) {
    if (s.settings.shuffle && goal && !goal->done) {
        s.allowance = static_cast<unsigned>(1 + next_random(s) % 64);
        s.wake.notify_one();
        while (!goal->done && s.allowance > 0 && (s.running || !s.ready.empty())) s.changed.wait(guard);
        if (s.waits == 0) s.allowance = 0;
    } else if (goal && !goal->done) {
        guard.unlock(); /* repeated queries must not keep the lock from the engine */
        std::this_thread::yield();
        guard.lock();
    }
    close_if_idle(s, guard);
}

void wait_for_device(State &s, Guard &guard, int device) {
    std::vector<ItemRef> last = s.devices[static_cast<size_t>(device)].orphans;
    for (cudaStream_t stream : s.streams) {
        if (stream->device == device) last.push_back(stream->tail);
    }
    for (const ItemRef &item : last) wait_for(s, guard, item);
    std::vector<ItemRef> &orphans = s.devices[static_cast<size_t>(device)].orphans;
    orphans.erase(std::remove_if(orphans.begin(), orphans.end(), [](const ItemRef &item) { return item->done; }),
                  orphans.end());
}

cudaError_t enqueue(cudaStream_t stream, const char *label, Work work, const void *owner) {
    if (forked_too_late()) return fail(cudaErrorInitializationError);
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    return fail(append(s, found, {label, found->device, Kind::work, std::move(work), owner}, nullptr));
}

cudaError_t enqueue_kernel(cudaStream_t stream, const char *label, Work work) {
    if (forked_too_late()) return fail(cudaErrorInitializationError);
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found || found->device != current_device()) return fail(cudaErrorInvalidResourceHandle);
    return fail(append(s, found, {label, found->device, Kind::kernel, std::move(work)}, nullptr));
}

void break_context(cudaError_t error) {
    State &s = state();
    Guard guard(s.lock);
    auto device = static_cast<size_t>(own_device());
    if (device < s.devices.size() && s.devices[device].broken == cudaSuccess) s.devices[device].broken = error;
}

unsigned long kernels_launched() {
    State &s = state();
    Guard guard(s.lock);
    return s.kernels;
}

} // namespace cuda_on_cpu
