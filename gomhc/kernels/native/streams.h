// Reading from and writing to the streams of one token. Included once for each instruction set, inside its namespace, after
// product.h.
//
//   read:   r = rsqrt(mean(x²) + e),  l = projection r scale + bias,  input = sum_j (sigmoid(l_j) + offset) x_j
//   write:  out_i = sum_j mix_ij x_j + write_i y
//
// One pass over the streams each; a token's streams stay in the cache between its steps. E is the type of their numbers in
// memory, and D is d where it is known when compiling, and 0 where it is not.
// d = streams, c = channels, k = 2d + p numbers of a token: read, write and mix logits

static inline float total(F vector) {
    float sum = 0;
    for (int lane = 0; lane < L; lane++) sum += vector[lane];
    return sum;
}
static inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

static inline float dot(const float *a, const float *b, int64_t size) {
    F sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * L <= size; i += 4 * L)
        for (int u = 0; u < 4; u++) sums[u] += load_vector(a + i + u * L) * load_vector(b + i + u * L);
    for (; i + L <= size; i += L) sums[0] += load_vector(a + i) * load_vector(b + i);
    float sum = total((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

// Calls `step(i, load, store)` for each vector of c numbers and for what is left of one.
template <typename Step> static inline void over_channels(int64_t c, const Step &step) {
    int64_t i = 0;
    for (; i + L <= c; i += L)
        step(
            i, [](const auto *from) { return load_vector(from); }, [](auto *to, F vector) { store_vector(to, vector); });
    if (i < c)
        step(
            i, [=](const auto *from) { return load_some(from, c - i); },
            [=](auto *to, F vector) { store_some(to, vector, c - i); });
}

// Reading
// ---------------------------------------------------------------------------------------------------------------------

// input = sum_j weights_j x_j
template <int D, typename X, typename E>
static inline void weigh(const X *x, const float *weights, E *input, int streams, int64_t c) {
    const int d = D ? D : streams;
    over_channels(c, [=](int64_t i, auto load, auto store) {
        F sum{};
        for (int j = 0; j < d; j++) sum += weights[j] * load(x + j * c + i);
        store(input + i, sum);
    });
}

template <int D, typename E> static void read_forward(const Read &task, int64_t token, float *scratch) {
    const int d = D ? D : task.d, k = task.k;
    const int64_t c = task.c;
    const float *projection = task.projection + token * k;
    const float *x = widened(static_cast<const E *>(task.x) + token * d * c, d * c, scratch);
    const float r = 1 / std::sqrt(dot(x, x, d * c) / float(d * c) + task.epsilon);
    task.inverse_rms[token] = r;
    float weights[D ? D : LARGEST];
    for (int j = 0; j < d; j++) {
        weights[j] = sigmoid(projection[j] * r * task.scale[j] + task.bias[j]) + task.offset;
        task.write[token * d + j] = 2 * sigmoid(projection[d + j] * r * task.scale[d + j] + task.bias[d + j]);
    }
    for (int i = 2 * d; i < k; i++)
        task.mix[token * (k - 2 * d) + i - 2 * d] = projection[i] * r * task.scale[i] + task.bias[i];
    weigh<D>(x, weights, static_cast<E *>(task.input) + token * c, d, c);
}

// The gradients at the logits and the projection. The one at the streams is weights_j grad + factor x_j, beside what comes
// through the projection; weights and factor go to `factors`.
template <int D, typename E>
static void read_backward(const Read &task, int64_t token, float *factors, float *scratch) {
    const int d = D ? D : task.d, k = task.k;
    const int64_t c = task.c;
    const float *x = widened(static_cast<const E *>(task.x) + token * d * c, d * c, scratch);
    const float *grad = widened(static_cast<const E *>(task.input) + token * c, c, scratch + d * c);
    const float *projection = task.projection + token * k;
    const float r = task.inverse_rms[token];
    float *grad_logits = task.grad_logits + token * k, *grad_projection = task.grad_projection + token * k;
    for (int j = 0; j < d; j++) {
        const float read = sigmoid(projection[j] * r * task.scale[j] + task.bias[j]);
        const float write = sigmoid(projection[d + j] * r * task.scale[d + j] + task.bias[d + j]);
        factors[j] = read + task.offset;
        grad_logits[j] = dot(grad, x + j * c, c) * read * (1 - read);
        grad_logits[d + j] = task.write[token * d + j] * 2 * write * (1 - write);
    }
    for (int i = 2 * d; i < k; i++) grad_logits[i] = task.mix[token * (k - 2 * d) + i - 2 * d];
    float grad_r = 0;
    for (int i = 0; i < k; i++) {
        grad_r += grad_logits[i] * projection[i] * task.scale[i];
        grad_projection[i] = grad_logits[i] * r * task.scale[i];
    }
    factors[d] = -grad_r * r * r * r / float(d * c);
}

template <int D, typename E> static void read_tokens(const Read &task, int64_t first, int64_t last) {
    const Scratch scratch(((last - first) * (task.d + 1) + (task.d + 1) * task.c + L - 1) / L);
    float *const factors = scratch.floats(), *const wide = factors + (last - first) * (task.d + 1);
    if (!task.back) project<E>(task, first, last);
    for (int64_t token = first; token < last; token++)
        task.back ? read_backward<D, E>(task, token, factors + (token - first) * (task.d + 1), wide)
                  : read_forward<D, E>(task, token, wide);
    if (task.back) spread<E>(task, first, last, factors);
}

// Adds the token's gradient at the weights to `sums`.
template <int D, typename E> static void sum_backward(const Sum &task, int64_t token, float *sums, float *scratch) {
    const int d = D ? D : task.d;
    const int64_t c = task.c;
    const float *x = widened(static_cast<const E *>(task.x) + token * d * c, d * c, scratch);
    const float *grad = widened(static_cast<const E *>(task.input) + token * c, c, scratch + d * c);
    const float *weights = task.weights;
    E *const grad_x = static_cast<E *>(task.grad_x) + token * d * c;
    for (int j = 0; j < d; j++) sums[j] += dot(grad, x + j * c, c);
    over_channels(c, [=](int64_t i, auto load, auto store) {
        const F g = load(grad + i);
        for (int j = 0; j < d; j++) store(grad_x + j * c + i, weights[j] * g);
    });
}

template <int D, typename E> static void sum_tokens(const Sum &task, int64_t first, int64_t last, float *sums) {
    const Scratch scratch((task.d + 1) * task.c / L + 1);
    const int64_t size = task.d * task.c;
    for (int64_t token = first; token < last; token++)
        if (task.back)
            sum_backward<D, E>(task, token, sums, scratch.floats());
        else
            weigh<D>(static_cast<const E *>(task.x) + token * size, task.weights,
                     static_cast<E *>(task.input) + token * task.c, task.d, task.c);
}

// Writing
// ---------------------------------------------------------------------------------------------------------------------

template <int D, typename E> static void write_forward(const Write &task, int64_t token) {
    const int d = D ? D : task.d;
    const int64_t c = task.c, own = task.matrices == 1 ? 0 : token;
    const E *x = static_cast<const E *>(task.x) + token * d * c, *y = static_cast<const E *>(task.y) + token * c;
    const float *mix = task.mix + own * d * d, *weights = task.weights + own * d;
    E *const out = static_cast<E *>(task.out) + token * d * c;
    over_channels(c, [=](int64_t i, auto load, auto store) {
        F streams[D ? D : LARGEST];
        for (int j = 0; j < d; j++) streams[j] = load(x + j * c + i);
        const F branch = load(y + i);
        for (int row = 0; row < d; row++) {
            F sum = weights[row] * branch;
            for (int j = 0; j < d; j++) sum += mix[row * d + j] * streams[j];
            store(out + row * c + i, sum);
        }
    });
}

// The token's gradients at the mix (d, d) and at the weights (d) are added to `sums`.
template <int D, typename E> static void write_backward(const Write &task, int64_t token, float *sums, float *scratch) {
    const int d = D ? D : task.d;
    const int64_t c = task.c, own = task.matrices == 1 ? 0 : token;
    const float *x = widened(static_cast<const E *>(task.x) + token * d * c, d * c, scratch);
    const float *grad = widened(static_cast<const E *>(task.out) + token * d * c, d * c, scratch + d * c);
    const float *y = widened(static_cast<const E *>(task.y) + token * c, c, scratch + 2 * d * c);
    const float *mix = task.mix + own * d * d, *weights = task.weights + own * d;
    E *const grad_x = static_cast<E *>(task.grad_x) + token * d * c, *const grad_y = static_cast<E *>(task.grad_y) + token * c;
    for (int row = 0; row < d; row++) {
        sums[d * d + row] += dot(grad + row * c, y, c);
        for (int j = 0; j < d; j++) sums[row * d + j] += dot(grad + row * c, x + j * c, c);
    }
    over_channels(c, [=](int64_t i, auto load, auto store) {
        F grads[D ? D : LARGEST], sum{};
        for (int row = 0; row < d; row++) {
            grads[row] = load(grad + row * c + i);
            sum += weights[row] * grads[row];
        }
        store(grad_y + i, sum);
        for (int j = 0; j < d; j++) {
            F stream{};
            for (int row = 0; row < d; row++) stream += mix[row * d + j] * grads[row];
            store(grad_x + j * c + i, stream);
        }
    });
}

template <int D, typename E> static void write_tokens(const Write &task, int64_t first, int64_t last, float *sums) {
    const int d = task.d;
    const bool shared = task.matrices == 1;
    const Scratch scratch(((2 * d + 1) * task.c + d * d + d) / L + 1);
    float *const own = scratch.floats();
    for (int64_t token = first; token < last; token++) {
        if (!task.back) {
            write_forward<D, E>(task, token);
            continue;
        }
        float *const gradient = shared ? sums : own;
        if (!shared) std::fill_n(own, d * d + d, 0.f);
        write_backward<D, E>(task, token, gradient, own + d * d + d);
        if (shared) continue;
        std::copy_n(own, d * d, task.grad_mix + token * d * d);
        std::copy_n(own + d * d, d, task.grad_weights + token * d);
    }
}

// Which version
// ---------------------------------------------------------------------------------------------------------------------

template <typename Call> static void for_elements(int element, const Call &call) {
    switch (element) {
        case BFLOAT16: return call(BFloat16{});
        case FLOAT16: return call(Float16{});
        default: return call(float{});
    }
}

template <typename Call> static void for_sizes(int d, const Call &call) {
    switch (d) {
        case 2: return call(std::integral_constant<int, 2>{});
        case 4: return call(std::integral_constant<int, 4>{});
        case 8: return call(std::integral_constant<int, 8>{});
        default: return call(std::integral_constant<int, 0>{});
    }
}

static void read(const Read &task, int64_t first, int64_t last, float *) {
    for_sizes(task.d, [&](auto d) {
        for_elements(task.element, [&](auto e) { read_tokens<decltype(d)::value, decltype(e)>(task, first, last); });
    });
}

static void sum(const Sum &task, int64_t first, int64_t last, float *sums) {
    for_sizes(task.d, [&](auto d) {
        for_elements(task.element, [&](auto e) { sum_tokens<decltype(d)::value, decltype(e)>(task, first, last, sums); });
    });
}

static void write(const Write &task, int64_t first, int64_t last, float *sums) {
    for_sizes(task.d, [&](auto d) {
        for_elements(task.element, [&](auto e) { write_tokens<decltype(d)::value, decltype(e)>(task, first, last, sums); });
    });
}
