// Reading from and writing to the streams of one token. Included once for each instruction set, inside its namespace.
//
//   read:   r = rsqrt(mean(x²) + e),  l = projection r scale + bias,  input = sum_j (sigmoid(l_j) + offset) x_j
//   write:  out_i = sum_j mix_ij x_j + write_i y
//
// One pass over the streams each; a token's streams stay in the cache between its steps.
// d = streams, c = channels, k = 2d + p numbers of a token: read, write and mix logits

typedef float F __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
constexpr int L = GOMHC_VECTOR_BYTES / int(sizeof(float));

static inline F load_floats(const float *from) {
    F vector;
    std::memcpy(&vector, from, sizeof(F));
    return vector;
}
static inline void store_floats(float *to, F vector) { std::memcpy(to, &vector, sizeof(F)); }
static inline F load_some(const float *from, int64_t count) {  // zeros behind them
    F vector{};
    std::memcpy(&vector, from, count * sizeof(float));
    return vector;
}
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
        for (int u = 0; u < 4; u++) sums[u] += load_floats(a + i + u * L) * load_floats(b + i + u * L);
    for (; i + L <= size; i += L) sums[0] += load_floats(a + i) * load_floats(b + i);
    float sum = total((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

// D is d where it is known when compiling, and 0 where it is not.
template <int D> static void read_forward(const Read &task, int64_t token) {
    const int d = D ? D : task.d, k = task.k;
    const int64_t c = task.c;
    const float *x = task.x + token * d * c, *projection = task.projection + token * k;
    const float r = 1 / std::sqrt(dot(x, x, d * c) / float(d * c) + task.epsilon);
    task.inverse_rms[token] = r;
    float weights[D ? D : LARGEST];
    for (int j = 0; j < d; j++) {
        weights[j] = sigmoid(projection[j] * r * task.scale[j] + task.bias[j]) + task.offset;
        task.write[token * d + j] = 2 * sigmoid(projection[d + j] * r * task.scale[d + j] + task.bias[d + j]);
    }
    for (int i = 2 * d; i < k; i++)
        task.mix[token * (k - 2 * d) + i - 2 * d] = projection[i] * r * task.scale[i] + task.bias[i];
    float *input = task.input + token * c;
    int64_t i = 0;
    for (; i + L <= c; i += L) {
        F sum{};
        for (int j = 0; j < d; j++) sum += weights[j] * load_floats(x + j * c + i);
        store_floats(input + i, sum);
    }
    for (; i < c; i++) {
        input[i] = 0;
        for (int j = 0; j < d; j++) input[i] += weights[j] * x[j * c + i];
    }
}

template <int D> static void read_backward(const Read &task, int64_t token) {
    const int d = D ? D : task.d, k = task.k;
    const int64_t c = task.c;
    const float *x = task.x + token * d * c, *projection = task.projection + token * k, *grad = task.input + token * c;
    const float r = task.inverse_rms[token];
    float *grad_logits = task.grad_logits + token * k, *grad_projection = task.grad_projection + token * k;
    float weights[D ? D : LARGEST];
    for (int j = 0; j < d; j++) {
        const float read = sigmoid(projection[j] * r * task.scale[j] + task.bias[j]);
        const float write = sigmoid(projection[d + j] * r * task.scale[d + j] + task.bias[d + j]);
        weights[j] = read + task.offset;
        grad_logits[j] = dot(grad, x + j * c, c) * read * (1 - read);
        grad_logits[d + j] = task.write[token * d + j] * 2 * write * (1 - write);
    }
    for (int i = 2 * d; i < k; i++) grad_logits[i] = task.mix[token * (k - 2 * d) + i - 2 * d];
    float grad_r = 0;
    for (int i = 0; i < k; i++) {
        grad_r += grad_logits[i] * projection[i] * task.scale[i];
        grad_projection[i] = grad_logits[i] * r * task.scale[i];
    }
    const float factor = -grad_r * r * r * r / float(d * c);
    float *grad_x = task.grad_x + token * d * c;
    int64_t i = 0;
    for (; i + L <= c; i += L) {
        const F g = load_floats(grad + i);
        for (int j = 0; j < d; j++) store_floats(grad_x + j * c + i, weights[j] * g + factor * load_floats(x + j * c + i));
    }
    for (; i < c; i++)
        for (int j = 0; j < d; j++) grad_x[j * c + i] = weights[j] * grad[i] + factor * x[j * c + i];
}

template <int D> static void write_forward(const Write &task, int64_t token) {
    const int d = D ? D : task.d;
    const int64_t c = task.c;
    const float *x = task.x + token * d * c, *mix = task.mix + token * d * d, *weights = task.weights + token * d;
    const float *y = task.y + token * c;
    float *out = task.out + token * d * c;
    int64_t i = 0;
    for (; i + L <= c; i += L) {
        F streams[D ? D : LARGEST];
        for (int j = 0; j < d; j++) streams[j] = load_floats(x + j * c + i);
        const F branch = load_floats(y + i);
        for (int row = 0; row < d; row++) {
            F sum = weights[row] * branch;
            for (int j = 0; j < d; j++) sum += mix[row * d + j] * streams[j];
            store_floats(out + row * c + i, sum);
        }
    }
    for (; i < c; i++)
        for (int row = 0; row < d; row++) {
            float sum = weights[row] * y[i];
            for (int j = 0; j < d; j++) sum += mix[row * d + j] * x[j * c + i];
            out[row * c + i] = sum;
        }
}

template <int D> static void write_backward(const Write &task, int64_t token) {
    const int d = D ? D : task.d;
    const int64_t c = task.c;
    const float *x = task.x + token * d * c, *mix = task.mix + token * d * d, *weights = task.weights + token * d;
    const float *y = task.y + token * c, *grad = task.out + token * d * c;
    float *grad_x = task.grad_x + token * d * c, *grad_y = task.grad_y + token * c;
    for (int row = 0; row < d; row++) {
        task.grad_weights[token * d + row] = dot(grad + row * c, y, c);
        for (int j = 0; j < d; j++) task.grad_mix[(token * d + row) * d + j] = dot(grad + row * c, x + j * c, c);
    }
    int64_t i = 0;
    for (; i + L <= c; i += L) {
        F grads[D ? D : LARGEST], sum{};
        for (int row = 0; row < d; row++) {
            grads[row] = load_floats(grad + row * c + i);
            sum += weights[row] * grads[row];
        }
        store_floats(grad_y + i, sum);
        for (int j = 0; j < d; j++) {
            F stream{};
            for (int row = 0; row < d; row++) stream += mix[row * d + j] * grads[row];
            store_floats(grad_x + j * c + i, stream);
        }
    }
    for (; i < c; i++) {
        grad_y[i] = 0;
        for (int row = 0; row < d; row++) grad_y[i] += weights[row] * grad[row * c + i];
        for (int j = 0; j < d; j++) {
            float stream = 0;
            for (int row = 0; row < d; row++) stream += mix[row * d + j] * grad[row * c + i];
            grad_x[j * c + i] = stream;
        }
    }
}

template <int D> static void read_tokens(const Read &task, int64_t first, int64_t last) {
    for (int64_t token = first; token < last; token++)
        task.back ? read_backward<D>(task, token) : read_forward<D>(task, token);
}

template <int D> static void write_tokens(const Write &task, int64_t first, int64_t last) {
    for (int64_t token = first; token < last; token++)
        task.back ? write_backward<D>(task, token) : write_forward<D>(task, token);
}

static void read(const Read &task, int64_t first, int64_t last) {
    switch (task.d) {
        case 2: return read_tokens<2>(task, first, last);
        case 4: return read_tokens<4>(task, first, last);
        case 8: return read_tokens<8>(task, first, last);
        default: return read_tokens<0>(task, first, last);
    }
}

static void write(const Write &task, int64_t first, int64_t last) {
    switch (task.d) {
        case 2: return write_tokens<2>(task, first, last);
        case 4: return write_tokens<4>(task, first, last);
        case 8: return write_tokens<8>(task, first, last);
        default: return write_tokens<0>(task, first, last);
    }
}
