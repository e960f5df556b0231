/* optimizer — set_learning_rate, begin_update, sgd, adam, sgd_list, adam_list.
 *   formula : kernels.h. Values that vary from step to step are read from the update state on the GPU, so that neither
 *             the host nor a captured CUDA graph needs them. With found_inf every thread returns
 *   launch  : fast: a block for each chunk of LS_UPDATE_CHUNK elements, 256 threads, four floats each at a time. A list
 *             is one launch for all of its tensors: a block finds its own by a binary search over first_chunk; a list
 *             of fewer chunks than the GPU has multiprocessors has SPLIT blocks for each. Naive: a thread for each
 *             element of a tensor, a block for each tensor of a list
 *   cost    : bytes and flops of ops.def; bound by bandwidth. A launch costs a few microseconds, as much as 10 MB of
 *             memory traffic, which is why a model of many small tensors is updated as a list
 *   order   : element by element, with the fused multiply-adds of kernels/cpu, whose bits both rungs give */
#include "kernels/cuda/update_list.cuh"

using namespace ls_cuda;

namespace {

/* --- the update state: one thread --------------------------------------------------------------------------------- */

__global__ void set_learning_rate(ls_update_state *states, size_t count, double rate) {
    for (size_t s = 0; s < count; s++) states[s].learning_rate = rate;
}

/* base^exponent for whole exponents, by squaring. Numbers are sums of two doubles, so the result is rounded once, at
 * the end, like the host's pow; a GPU's own pow may be two units in the last place off. */
struct TwoDoubles {
    double high, low;
};

__device__ TwoDoubles multiply(TwoDoubles a, TwoDoubles b) {
    double high = a.high * b.high, error = fma(a.high, b.high, -high);
    double low = error + (a.high * b.low + a.low * b.high), sum = high + low;
    return {sum, low - (sum - high)};
}

__device__ double power(double base, double exponent) {
    TwoDoubles result = {1, 0}, square = {base, 0};
    for (unsigned long long bits = (unsigned long long)exponent; bits != 0; bits /= 2) {
        if (bits % 2 == 1) result = multiply(result, square);
        square = multiply(square, square);
    }
    return result.high;
}

__global__ void begin_update(ls_update_state *state, double beta1, double beta2) {
    if (state->found_inf != 0) return;
    state->step += 1;
    state->step_size = (float)(state->learning_rate / (1 - power(beta1, state->step)));
    state->bias2_sqrt = (float)sqrt(1 - power(beta2, state->step));
}

/* --- the rules: factors common to all elements, and the update of N elements from the i-th on --------------------- */

struct Sgd {
    struct Factors {
        float factor, decay, minus_rate, momentum, keep; /* factor on gradients; keep = 1 - dampening */
        bool first, nesterov;
    };
    ls_sgd_rule rule;

    __device__ Factors factors(const ls_update_state &state) const {
        return {state.gradient_factor, rule.weight_decay,  (float)-state.learning_rate,
                rule.momentum,         1 - rule.dampening, state.step == 1,
                rule.nesterov};
    }

    template <int N> __device__ static void at(const Factors &f, const ls_update_tensor &t, size_t i) {
        Floats<N> p = load<N>(t.parameter + i), d = load<N>(t.gradient + i);
        for (int k = 0; k < N; k++) d.at[k] *= f.factor;
        for (int k = 0; k < N && f.decay != 0; k++) d.at[k] = fmaf(p.at[k], f.decay, d.at[k]);
        if (f.momentum != 0) {
            Floats<N> m = d;
            if (!f.first) {
                m = load<N>(t.first + i);
                for (int k = 0; k < N; k++) m.at[k] = fmaf(d.at[k], f.keep, m.at[k] * f.momentum);
            }
            store<N>(t.first + i, m);
            for (int k = 0; k < N; k++) d.at[k] = f.nesterov ? fmaf(m.at[k], f.momentum, d.at[k]) : m.at[k];
        }
        for (int k = 0; k < N; k++) p.at[k] = fmaf(d.at[k], f.minus_rate, p.at[k]);
        store<N>(t.parameter + i, p);
    }
};

struct Adam {
    struct Factors {
        float factor; /* on gradients */
        float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
        float shrink, decay; /* AdamW's factor on p (1 if coupled); Adam's L2 term (0 if decoupled) */
        float minus_step_size, bias2_sqrt;
    };
    ls_adam_rule rule;

    __device__ Factors factors(const ls_update_state &state) const {
        return {state.gradient_factor,
                (float)rule.beta1,
                (float)(1 - rule.beta1),
                (float)rule.beta2,
                (float)(1 - rule.beta2),
                (float)rule.epsilon,
                rule.decoupled ? (float)(1 - state.learning_rate * rule.weight_decay) : 1,
                rule.decoupled ? 0 : (float)rule.weight_decay,
                -state.step_size,
                state.bias2_sqrt};
    }

    template <int N> __device__ static void at(const Factors &f, const ls_update_tensor &t, size_t i) {
        Floats<N> p = load<N>(t.parameter + i), g = load<N>(t.gradient + i);
        Floats<N> m = load<N>(t.first + i), v = load<N>(t.second + i);
        for (int k = 0; k < N; k++) {
            float parameter = p.at[k] * f.shrink, gradient = fmaf(parameter, f.decay, g.at[k] * f.factor);
            m.at[k] = fmaf(gradient, f.one_minus_beta1, m.at[k] * f.beta1);
            v.at[k] = fmaf(gradient * f.one_minus_beta2, gradient, v.at[k] * f.beta2);
            float denominator = sqrtf(v.at[k]) / f.bias2_sqrt + f.epsilon;
            p.at[k] = fmaf(f.minus_step_size, m.at[k] / denominator, parameter);
        }
        store<N>(t.first + i, m);
        store<N>(t.second + i, v);
        store<N>(t.parameter + i, p);
    }
};

/* --- naive -------------------------------------------------------------------------------------------------------- */

template <class Rule> __global__ void update_naive(Rule rule, const ls_update_state *state, ls_update_tensor tensor) {
    size_t i = global_thread();
    if (state->found_inf == 0 && i < tensor.count) Rule::template at<1>(rule.factors(*state), tensor, i);
}

template <class Rule>
__global__ void update_list_naive(Rule rule, const ls_update_state *state, const ls_update_tensor *tensors) {
    if (state->found_inf != 0) return;
    ls_update_tensor tensor = tensors[blockIdx.x];
    typename Rule::Factors factors = rule.factors(*state);
    for (size_t i = threadIdx.x; i < tensor.count; i += blockDim.x) Rule::template at<1>(factors, tensor, i);
}

/* --- fast --------------------------------------------------------------------------------------------------------- */

/* Every thread of a block calls. */
template <class Rule> __device__ void update_chunk(const typename Rule::Factors &factors, const Chunk &chunk) {
    const ls_update_tensor &tensor = chunk.tensor;
    bool aligned = is_aligned(tensor.parameter, tensor.gradient, tensor.first, tensor.second);
    size_t whole = aligned ? chunk.count / 4 * 4 : 0, begin = chunk.begin;
    for (size_t i = 4 * threadIdx.x; i < whole; i += 4 * THREADS) Rule::template at<4>(factors, tensor, begin + i);
    for (size_t i = whole + threadIdx.x; i < chunk.count; i += THREADS)
        Rule::template at<1>(factors, tensor, begin + i);
}

template <class Rule> __global__ void update_fast(Rule rule, const ls_update_state *state, ls_update_tensor tensor) {
    if (state->found_inf == 0) update_chunk<Rule>(rule.factors(*state), chunk_of(tensor, blockIdx.x));
}

constexpr size_t SPLIT = LS_UPDATE_CHUNK / (4 * THREADS);

/* One of `split` equal parts of a chunk; the last parts of a short chunk are empty. */
__device__ Chunk part_of(Chunk chunk, size_t index, size_t split) {
    size_t each = LS_UPDATE_CHUNK / split, begin = index * each, left = chunk.count > begin ? chunk.count - begin : 0;
    return {chunk.tensor, chunk.begin + begin, left < each ? left : each};
}

template <class Rule>
__global__ void update_list_fast(Rule rule, const ls_update_state *state, const ls_update_tensor *tensors,
                                 size_t tensor_count, size_t split) {
    if (state->found_inf != 0) return;
    Chunk chunk = find_chunk(tensors, tensor_count, blockIdx.x / split);
    update_chunk<Rule>(rule.factors(*state), part_of(chunk, blockIdx.x % split, split));
}

/* --- one tensor is a list of one, passed as a kernel argument ----------------------------------------------------- */

ls_update_tensor tensor_of(const ls_sgd_arguments *a) {
    return {a->parameter, a->gradient, a->momentum, nullptr, a->count, 0};
}

ls_update_tensor tensor_of(const ls_adam_arguments *a) {
    return {a->parameter, a->gradient, a->first_moment, a->second_moment, a->count, 0};
}

dim3 blocks_of(size_t count) { return dim3((unsigned)divide_up(count, LS_UPDATE_CHUNK)); }

template <class Rule, class Arguments>
ls_status fast_list(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    size_t split = a->chunk_count < (size_t)lane->multiprocessors ? SPLIT : 1;
    return launch(lane, op, dim3((unsigned)(a->chunk_count * split)), THREADS, update_list_fast<Rule>, Rule{a->rule},
                  a->state, a->tensors, a->tensor_count, split);
}

} // namespace

ls_status ls_cuda_naive_set_learning_rate(const ls_set_learning_rate_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "set_learning_rate", dim3(1), 1, set_learning_rate, a->states, a->state_count, a->rate);
}

ls_status ls_cuda_set_learning_rate(const ls_set_learning_rate_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_set_learning_rate(a, lane);
}

ls_status ls_cuda_naive_begin_update(const ls_begin_update_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "begin_update", dim3(1), 1, begin_update, a->state, a->beta1, a->beta2);
}

ls_status ls_cuda_begin_update(const ls_begin_update_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_begin_update(a, lane);
}

ls_status ls_cuda_naive_sgd(const ls_sgd_arguments *a, const ls_cuda_lane *lane) {
    return launch_each(lane, "sgd", a->count, update_naive<Sgd>, Sgd{a->rule}, a->state, tensor_of(a));
}

ls_status ls_cuda_naive_adam(const ls_adam_arguments *a, const ls_cuda_lane *lane) {
    return launch_each(lane, "adam", a->count, update_naive<Adam>, Adam{a->rule}, a->state, tensor_of(a));
}

ls_status ls_cuda_naive_sgd_list(const ls_sgd_list_arguments *a, const ls_cuda_lane *lane) {
    dim3 blocks((unsigned)a->tensor_count);
    return launch(lane, "sgd_list", blocks, THREADS, update_list_naive<Sgd>, Sgd{a->rule}, a->state, a->tensors);
}

ls_status ls_cuda_naive_adam_list(const ls_adam_list_arguments *a, const ls_cuda_lane *lane) {
    dim3 blocks((unsigned)a->tensor_count);
    return launch(lane, "adam_list", blocks, THREADS, update_list_naive<Adam>, Adam{a->rule}, a->state, a->tensors);
}

ls_status ls_cuda_sgd(const ls_sgd_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "sgd", blocks_of(a->count), THREADS, update_fast<Sgd>, Sgd{a->rule}, a->state, tensor_of(a));
}

ls_status ls_cuda_adam(const ls_adam_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "adam", blocks_of(a->count), THREADS, update_fast<Adam>, Adam{a->rule}, a->state, tensor_of(a));
}

ls_status ls_cuda_sgd_list(const ls_sgd_list_arguments *a, const ls_cuda_lane *lane) {
    return fast_list<Sgd>(lane, "sgd_list", a);
}

ls_status ls_cuda_adam_list(const ls_adam_list_arguments *a, const ls_cuda_lane *lane) {
    return fast_list<Adam>(lane, "adam_list", a);
}
