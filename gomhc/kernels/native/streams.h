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

// Adds the products of what is left of a vector.
static inline float with_tail(float sum, const float *a, const float *b, int64_t i, int64_t size) {
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

static inline float dot(const float *a, const float *b, int64_t size) {
    F sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * L <= size; i += 4 * L)
        for (int u = 0; u < 4; u++) sums[u] += load_vector(a + i + u * L) * load_vector(b + i + u * L);
    for (; i + L <= size; i += L) sums[0] += load_vector(a + i) * load_vector(b + i);
    return with_tail(total((sums[0] + sums[1]) + (sums[2] + sums[3])), a, b, i, size);
}

// Inner products of R rows of a with Q of b, without their tails: vectors that are still to be added up, lane after lane.
template <int R, int Q>
static inline void inner_tile(const float *const *a, const float *const *b, int64_t c, F *to, int stride) {
    F sums[R][Q][4] = {};
    const auto add = [&](int64_t i, int u) {
        F columns[Q];
        for (int q = 0; q < Q; q++) columns[q] = load_vector(b[q] + i);
        for (int r = 0; r < R; r++) {
            const F row = load_vector(a[r] + i);
            for (int q = 0; q < Q; q++) sums[r][q][u] += row * columns[q];
        }
    };
    int64_t i = 0;
    for (; i + 4 * L <= c; i += 4 * L)
        for (int u = 0; u < 4; u++) add(i + u * L, u);
    for (; i + L <= c; i += L) add(i, 0);
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++)
            to[r * stride + q] = (sums[r][q][0] + sums[r][q][1]) + (sums[r][q][2] + sums[r][q][3]);
}

constexpr int PAIR = GOMHC_VECTOR_BYTES == 64 ? 2 : 1;  // rows of a tile, as registers allow

// products[r * columns + q] = a_r b_q, each rounded as `dot` rounds it; at most PAIR rows and LARGEST + 1 columns.
static inline void inner_products(const float *const *a, int rows, const float *const *b, int columns, int64_t c, float *products) {
    F sums[PAIR * (LARGEST + 1) + L];
    int q = 0;
    for (; q + 2 <= columns; q += 2)
        rows == PAIR ? inner_tile<PAIR, 2>(a, b + q, c, sums + q, columns) : inner_tile<1, 2>(a, b + q, c, sums + q, columns);
    if (q < columns)
        rows == PAIR ? inner_tile<PAIR, 1>(a, b + q, c, sums + q, columns) : inner_tile<1, 1>(a, b + q, c, sums + q, columns);
    const int count = rows * columns;
    for (int done = 0; done < count; done += L) {  // L sums at once
        for (int i = count - done; i < L; i++) sums[done + i] = F{};
        transpose<F, L>(sums + done);
        F sum = sums[done];
        for (int lane = 1; lane < L; lane++) sum += sums[done + lane];
        std::memcpy(products + done, &sum, std::min(L, count - done) * sizeof(float));
    }
    if (c % L == 0) return;
    for (int r = 0; r < rows; r++)
        for (q = 0; q < columns; q++) {
            float &product = products[r * columns + q];
            product = with_tail(product, a[r], b[q], c / L * L, c);
        }
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
    const float *streams[D ? D : LARGEST];
    for (int j = 0; j < d; j++) streams[j] = x + j * c;
    inner_products(&grad, 1, streams, d, c, grad_logits);
    for (int j = 0; j < d; j++) {
        const float read = sigmoid(projection[j] * r * task.scale[j] + task.bias[j]);
        const float write = sigmoid(projection[d + j] * r * task.scale[d + j] + task.bias[d + j]);
        factors[j] = read + task.offset;
        grad_logits[j] = grad_logits[j] * read * (1 - read);
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

template <int D, typename E> static void read_tokens(const Read &task, int64_t first, int64_t last, const Ahead &ahead) {
    const Scratch scratch(((last - first) * (task.d + 1) + (task.d + 1) * task.c + L - 1) / L);
    float *const factors = scratch.floats(), *const wide = factors + (last - first) * (task.d + 1);
    if (!task.back) project<E>(task, first, last, ahead);
    for (int64_t token = first; token < last; token++)
        task.back ? read_backward<D, E>(task, token, factors + (token - first) * (task.d + 1), wide)
                  : read_forward<D, E>(task, token, wide);
    if (task.back) spread<E>(task, first, last, factors, ahead);
}

// Adds the token's gradient at the weights to `sums`.
template <int D, typename E> static void sum_backward(const Sum &task, int64_t token, float *sums, float *scratch) {
    const int d = D ? D : task.d;
    const int64_t c = task.c;
    const float *x = widened(static_cast<const E *>(task.x) + token * d * c, d * c, scratch);
    const float *grad = widened(static_cast<const E *>(task.input) + token * c, c, scratch + d * c);
    const float *weights = task.weights;
    E *const grad_x = static_cast<E *>(task.grad_x) + token * d * c;
    const float *streams[D ? D : LARGEST];
    for (int j = 0; j < d; j++) streams[j] = x + j * c;
    float products[D ? D : LARGEST];
    inner_products(&grad, 1, streams, d, c, products);
    for (int j = 0; j < d; j++) sums[j] += products[j];
    const E *later = task.grad_later == nullptr ? nullptr : static_cast<const E *>(task.grad_later) + token * d * c;
    over_channels(c, [=](int64_t i, auto load, auto store) {
        const F g = load(grad + i);
        for (int j = 0; j < d; j++) {
            F sum = later == nullptr ? F{} : load(later + j * c + i);
            sum += weights[j] * g;
            store(grad_x + j * c + i, sum);
        }
    });
}

template <int D, typename E> static void sum_tokens(const Sum &task, int64_t first, int64_t last, float *sums) {
    const Scratch scratch((task.d + (task.d + 1) * task.c) / L + 1);
    float *const gradient = scratch.floats();
    std::fill_n(gradient, task.d, 0.f);
    const int64_t size = task.d * task.c;
    for (int64_t token = first; token < last; token++)
        if (task.back)
            sum_backward<D, E>(task, token, gradient, gradient + task.d);
        else
            weigh<D>(static_cast<const E *>(task.x) + token * size, task.weights,
                     static_cast<E *>(task.input) + token * task.c, task.d, task.c);
    if (task.back) std::copy_n(gradient, task.d, sums);
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

constexpr bool in_one_pass(int d) { return GOMHC_VECTOR_BYTES == 64 && d * (d + 1) <= 20 && d > 0; }  // by its registers

// As below, with all inner products in registers.
template <int D, typename E> static void write_backward_at_once(const Write &task, int64_t token, float *sums) {
    const int64_t c = task.c, own = task.matrices == 1 ? 0 : token;
    const E *const x = static_cast<const E *>(task.x) + token * D * c, *const y = static_cast<const E *>(task.y) + token * c;
    const E *const grad = static_cast<const E *>(task.out) + token * D * c;
    const float *const mix = task.mix + own * D * D, *const weights = task.weights + own * D;
    E *const grad_x = static_cast<E *>(task.grad_x) + token * D * c, *const grad_y = static_cast<E *>(task.grad_y) + token * c;
    constexpr int COUNT = D * (D + 1), ALL = (COUNT + L - 1) / L * L;
    F products[ALL];
    for (F &product : products) product = F{};
    over_channels(c, [&](int64_t i, auto load, auto store) {
        F grads[D], columns[D + 1], sum{};
        for (int j = 0; j < D; j++) columns[j] = in_register(load(x + j * c + i));
        columns[D] = in_register(load(y + i));
        for (int row = 0; row < D; row++) {
            grads[row] = in_register(load(grad + row * c + i));
            for (int j = 0; j <= D; j++) products[row * (D + 1) + j] += grads[row] * columns[j];
        }
        for (int row = 0; row < D; row++) sum += weights[row] * grads[row];
        store(grad_y + i, sum);
        for (int j = 0; j < D; j++) {
            F stream{};
            for (int row = 0; row < D; row++) stream += mix[row * D + j] * grads[row];
            store(grad_x + j * c + i, stream);
        }
    });
    for (int done = 0; done < COUNT; done += L) {
        transpose<F, L>(products + done);
        F sum = products[done];
        for (int lane = 1; lane < L; lane++) sum += products[done + lane];
        for (int i = 0; i < std::min(L, COUNT - done); i++) sums[done + i] += sum[i];
    }
}

// The token's gradients at the mix and at the weights are added to `sums` (d, d + 1).
template <int D, typename E> static void write_backward(const Write &task, int64_t token, float *sums, float *scratch) {
    const int d = D ? D : task.d;
    const int64_t c = task.c, own = task.matrices == 1 ? 0 : token;
    const float *x = widened(static_cast<const E *>(task.x) + token * d * c, d * c, scratch);
    const float *grad = widened(static_cast<const E *>(task.out) + token * d * c, d * c, scratch + d * c);
    const float *y = widened(static_cast<const E *>(task.y) + token * c, c, scratch + 2 * d * c);
    const float *mix = task.mix + own * d * d, *weights = task.weights + own * d;
    E *const grad_x = static_cast<E *>(task.grad_x) + token * d * c, *const grad_y = static_cast<E *>(task.grad_y) + token * c;
    const float *columns[(D ? D : LARGEST) + 1];
    for (int j = 0; j < d; j++) columns[j] = x + j * c;
    columns[d] = y;
    for (int row = 0; row < d; row += PAIR) {
        const float *rows[] = {grad + row * c, grad + (row + 1) * c};
        const int count = std::min(PAIR, d - row);
        float products[PAIR * (LARGEST + 1)];
        inner_products(rows, count, columns, d + 1, c, products);
        for (int i = 0; i < count * (d + 1); i++) sums[row * (d + 1) + i] += products[i];
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
    const int d = task.d, size = d * d + d;
    const Scratch scratch(((2 * d + 1) * task.c + size) / L + 1);
    float *const gradient = scratch.floats(), *const wide = gradient + size;
    std::fill_n(gradient, size, 0.f);
    for (int64_t token = first; token < last; token++) {
        if (!task.back) {
            write_forward<D, E>(task, token);
            continue;
        }
        if constexpr (in_one_pass(D))
            write_backward_at_once<D, E>(task, token, gradient);
        else
            write_backward<D, E>(task, token, gradient, wide);
        if (task.matrices == 1) continue;
        take_apart(gradient, d, task.grad_mix + token * d * d, task.grad_weights + token * d);
        std::fill_n(gradient, size, 0.f);
    }
    if (task.back && task.matrices == 1) std::copy_n(gradient, size, sums);  // here, as threads share the cache lines of these
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

static void read(const Read &task, int64_t first, int64_t last, const Ahead &ahead) {
    for_sizes(task.d, [&](auto d) {
        for_elements(task.element, [&](auto e) { read_tokens<decltype(d)::value, decltype(e)>(task, first, last, ahead); });
    });
}

static void weight_gradient(const Read &task, int64_t first, int64_t last) {
    for_elements(task.element, [&](auto e) { gradient_columns<decltype(e)>(task, first, last); });
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
