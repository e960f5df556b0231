/* embedding — adds rows of a table, selected by tokens, and rows of the positions; and computes the table's gradient.
 *   launch : forward: a thread for each element (fast: four). Backward, naive: a thread for each element of the table,
 *            which visits all tokens. Fast: the table is cleared (unless accumulate), then a block for each row of
 *            dy. The block of a token's first row adds all rows of that token; the others end as soon as they have
 *            found an earlier one
 *   idea   : so no two blocks write one row of the table, and nothing is sorted. A block checks THREADS tokens at a
 *            time; rows with its own token are listed, in order, in shared memory, and each thread then adds these
 *            rows, for separate columns
 *   cost   : bytes of ops.def. Searching reads the tokens, from the cache: at most once for each token that occurs, and
 *            for other rows up to their token's first one
 *   order  : rows ascending, each added to the earlier sum: the bits of kernels/cpu, on both rungs
 *   parts  : a part of the table has rows for its own tokens only; for other tokens it has rows of zeros
 *   fails  : a token outside of [0, vocabulary) goes to lane->fault; its row of y is not written, its row of dy not
 *            added */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

struct Tokens {
    const int32_t *at;
    size_t rows;
    ls_class_part part;
    ls_cuda_fault *fault;

    __device__ bool is_token(int32_t token) const { return token >= 0 && (size_t)token < part.whole; }

    /* Whether the part has a token's row, and the index of that row. */
    __device__ bool is_here(int32_t token) const {
        return (size_t)token >= part.first && (size_t)token - part.first < part.count;
    }
    __device__ size_t place(int32_t token) const { return (size_t)token - part.first; }

    __device__ void report(int32_t token) const {
        fault->limit = (int32_t)part.whole;
        fault->value = token;
        fault->kind = LS_CUDA_FAULT_TOKEN;
    }
};

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <class T> struct Look {
    T *y;
    Tokens tokens;
    const float *token_table, *position_table;
    size_t context, channels;
    const char *op;
};

template <int N, class T> __global__ void look_up(Look<T> a, size_t count) {
    for (size_t i = global_thread() * N; i < count; i += global_threads() * N) {
        size_t r = i / a.channels, c = i % a.channels;
        int32_t token = a.tokens.at[r];
        if (!a.tokens.is_token(token)) {
            a.tokens.report(token);
            continue;
        }
        Floats<N> value = {};
        if (a.tokens.is_here(token)) value = load<N>(a.token_table + a.tokens.place(token) * a.channels + c);
        if (a.position_table) {
            Floats<N> position = load<N>(a.position_table + r % a.context * a.channels + c);
            for (int k = 0; k < N; k++) value.at[k] += position.at[k];
        }
        store<N>(a.y + i, value);
    }
}

template <class Run>
ls_status with_look(const char *op, const ls_embedding_part_forward_arguments *a, const ls_cuda_lane *lane, Run run) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return run(Look<T>{static_cast<T *>(a->y),
                           {a->tokens, a->rows, a->part, lane->fault},
                           a->token_table,
                           a->position_table,
                           a->context,
                           a->channels,
                           op},
                   a->rows * a->channels);
    });
}

template <int N, class T> ls_status run_look_up(const ls_cuda_lane *lane, Look<T> look, size_t count) {
    return launch(lane, look.op, dim3(blocks_for(lane, divide_up(count, N))), THREADS, look_up<N, T>, look, count);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

template <class T> struct Gradient {
    float *dtable;
    const T *dy;
    Tokens tokens;
    size_t channels;
    const char *op;
};

template <class T> __global__ void gradient_naive(Gradient<T> g, bool accumulate) {
    size_t i = global_thread(), v = i / g.channels, c = i % g.channels;
    if (v >= g.tokens.part.room) return;
    float sum = accumulate ? g.dtable[i] : 0;
    for (size_t r = 0; r < g.tokens.rows; r++) {
        int32_t token = g.tokens.at[r];
        if (i == 0 && !g.tokens.is_token(token)) g.tokens.report(token);
        if (g.tokens.is_token(token) && g.tokens.is_here(token) && g.tokens.place(token) == v)
            sum += to_float(g.dy[r * g.channels + c]);
    }
    g.dtable[i] = sum;
}

/* The number of lanes up to this one that are `mine`. */
__device__ unsigned count_to_here(bool mine) {
    unsigned count = mine;
    for (unsigned distance = 1; distance < WARP; distance *= 2) {
        unsigned before = __shfl_up_sync(FULL_WARP, count, distance);
        if (threadIdx.x % WARP >= distance) count += before;
    }
    return count;
}

/* Lists in `found`, in order, those of up to THREADS rows from `first` to before `end` that have the token; returns
 * their number. Every thread of the block calls. */
__device__ unsigned find_rows(const Tokens &tokens, int32_t token, size_t first, size_t end, size_t *found) {
    __shared__ unsigned warps[THREADS / WARP];
    size_t r = first + threadIdx.x;
    bool mine = r < end && tokens.at[r] == token;
    unsigned place = count_to_here(mine), warp = threadIdx.x / WARP, count = 0;
    __syncthreads(); /* threads may still read the last call's list */
    if (threadIdx.x % WARP == WARP - 1) warps[warp] = place;
    __syncthreads();
    for (unsigned w = 0; w < THREADS / WARP; w++) {
        if (w == warp) place += count;
        count += warps[w];
    }
    if (mine) found[place - 1] = r;
    __syncthreads();
    return count;
}

template <int N, class T> __global__ void add_rows(Gradient<T> g) {
    __shared__ size_t found[THREADS];
    int32_t token = g.tokens.at[blockIdx.x];
    if (!g.tokens.is_token(token)) {
        if (threadIdx.x == 0) g.tokens.report(token);
        return;
    }
    if (!g.tokens.is_here(token)) return;
    for (size_t first = 0; first < blockIdx.x; first += THREADS) {
        if (find_rows(g.tokens, token, first, blockIdx.x, found) > 0) return; /* an earlier block adds them */
    }
    float *dtable = g.dtable + g.tokens.place(token) * g.channels;
    for (size_t first = blockIdx.x; first < g.tokens.rows; first += THREADS) {
        unsigned count = find_rows(g.tokens, token, first, g.tokens.rows, found);
        for (size_t c = (size_t)threadIdx.x * N; count > 0 && c < g.channels; c += THREADS * N) {
            Floats<N> sum = load<N>(dtable + c);
            for (unsigned i = 0; i < count; i++) {
                Floats<N> more = load<N>(g.dy + found[i] * g.channels + c);
                for (int k = 0; k < N; k++) sum.at[k] += more.at[k];
            }
            store<N>(dtable + c, sum);
        }
    }
}

template <class Run>
ls_status with_gradient(const char *op, const ls_embedding_part_backward_arguments *a, const ls_cuda_lane *lane,
                        Run run) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return run(Gradient<T>{
            a->dtable, static_cast<const T *>(a->dy), {a->tokens, a->rows, a->part, lane->fault}, a->channels, op});
    });
}

template <int N, class T> ls_status run_add_rows(const ls_cuda_lane *lane, Gradient<T> g) {
    return launch(lane, g.op, dim3((unsigned)g.tokens.rows), THREADS, add_rows<N, T>, g);
}

/* --- the whole vocabulary ----------------------------------------------------------------------------------------- */

ls_class_part all(size_t vocabulary) { return {0, vocabulary, vocabulary, vocabulary}; }

ls_embedding_part_forward_arguments whole(const ls_embedding_forward_arguments *a) {
    return {a->dtype, a->y,       a->tokens,          a->token_table, a->position_table,
            a->rows,  a->context, all(a->vocabulary), a->channels};
}

ls_embedding_part_backward_arguments whole(const ls_embedding_backward_arguments *a) {
    return {a->dtype, a->dtable, a->dy, a->tokens, a->rows, all(a->vocabulary), a->channels, a->accumulate};
}

} // namespace

static ls_status look_naive(const char *op, const ls_embedding_part_forward_arguments *a, const ls_cuda_lane *lane) {
    return with_look(op, a, lane, [&](auto look, size_t count) {
        using T = std::remove_pointer_t<decltype(look.y)>;
        return launch_each(lane, op, count, look_up<1, T>, look, count);
    });
}

static ls_status look_fast(const char *op, const ls_embedding_part_forward_arguments *a, const ls_cuda_lane *lane) {
    return with_look(op, a, lane, [&](auto look, size_t count) {
        bool by_fours = a->channels % 4 == 0 && is_aligned(look.y) && is_aligned(a->token_table) &&
                        (!a->position_table || is_aligned(a->position_table));
        return by_fours ? run_look_up<4>(lane, look, count) : run_look_up<1>(lane, look, count);
    });
}

static ls_status back_naive(const char *op, const ls_embedding_part_backward_arguments *a, const ls_cuda_lane *lane) {
    return with_gradient(op, a, lane, [&](auto g) {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(g.dy)>>;
        return launch_each(lane, op, a->part.room * a->channels, gradient_naive<T>, g, a->accumulate);
    });
}

static ls_status back_fast(const char *op, const ls_embedding_part_backward_arguments *a, const ls_cuda_lane *lane) {
    const ls_fill_arguments clear = {a->dtable, 0, a->part.room * a->channels};
    ls_status status = a->accumulate ? LS_OK : ls_cuda_fill(&clear, lane);
    if (status != LS_OK) return status;
    return with_gradient(op, a, lane, [&](auto g) {
        bool by_fours = a->channels % 4 == 0 && is_aligned(a->dtable) && is_aligned(g.dy);
        return by_fours ? run_add_rows<4>(lane, g) : run_add_rows<1>(lane, g);
    });
}

/* Both operations of a direction, on both rungs. */
ls_status ls_cuda_naive_embedding_part_forward(const ls_embedding_part_forward_arguments *a, const ls_cuda_lane *lane) {
    return look_naive("embedding_part_forward", a, lane);
}
ls_status ls_cuda_naive_embedding_forward(const ls_embedding_forward_arguments *a, const ls_cuda_lane *lane) {
    const ls_embedding_part_forward_arguments part = whole(a);
    return look_naive("embedding_forward", &part, lane);
}
ls_status ls_cuda_embedding_part_forward(const ls_embedding_part_forward_arguments *a, const ls_cuda_lane *lane) {
    return look_fast("embedding_part_forward", a, lane);
}
ls_status ls_cuda_embedding_forward(const ls_embedding_forward_arguments *a, const ls_cuda_lane *lane) {
    const ls_embedding_part_forward_arguments part = whole(a);
    return look_fast("embedding_forward", &part, lane);
}
ls_status ls_cuda_naive_embedding_part_backward(const ls_embedding_part_backward_arguments *a,
                                                const ls_cuda_lane *lane) {
    return back_naive("embedding_part_backward", a, lane);
}
ls_status ls_cuda_naive_embedding_backward(const ls_embedding_backward_arguments *a, const ls_cuda_lane *lane) {
    const ls_embedding_part_backward_arguments part = whole(a);
    return back_naive("embedding_backward", &part, lane);
}
ls_status ls_cuda_embedding_part_backward(const ls_embedding_part_backward_arguments *a, const ls_cuda_lane *lane) {
    return back_fast("embedding_part_backward", a, lane);
}
ls_status ls_cuda_embedding_backward(const ls_embedding_backward_arguments *a, const ls_cuda_lane *lane) {
    const ls_embedding_part_backward_arguments part = whole(a);
    return back_fast("embedding_backward", &part, lane);
}
