// Weights that sum to one: those of each row, and those of the cyclic shifts. Included once for each instruction set, inside
// its namespace.
//
//   rows:  B_i = softmax(Z_i);        circulant:  w = softmax(z),  B_ij = w_{(i - j) mod d}
//   backward of w = softmax(z):  g_k = w_k (G_k - <w, G>)
//
// d = streams, p = d² for rows, d for circulant matrices

static inline void softmax(const Lanes *logits, int count, Lanes *weights) {
    Lanes largest = logits[0], sum{};
    for (int i = 1; i < count; i++) largest = at_least(logits[i], largest);
    for (int i = 0; i < count; i++) sum += weights[i] = exponential<float>(logits[i] - largest);
    for (int i = 0; i < count; i++) weights[i] /= sum;
}

// From gradients at the weights, which stand in `out`, to those at the logits.
static inline void softmax_gradient(const Lanes *weights, int count, Lanes *out) {
    Lanes mean{};
    for (int i = 0; i < count; i++) mean += weights[i] * out[i];
    for (int i = 0; i < count; i++) out[i] = weights[i] * (out[i] - mean);
}

template <int D> struct Rows {
    static int64_t scratch(const Part &part) { return part.d; }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t, Memory) {
        const int d = D ? D : part.d;
        for (int i = 0; i < d; i++) softmax(logits + i * d, d, image + i * d);
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t,
                         Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const weights = memory.take<Lanes>(d);
        for (int i = 0; i < d; i++) {
            softmax(logits + i * d, d, weights);
            for (int j = 0; j < d; j++) grad_logits[i * d + j] = grad[i * d + j];
            softmax_gradient(weights, d, grad_logits + i * d);
        }
    }
};

template <int D> struct Circulant {
    static int64_t scratch(const Part &part) { return part.d; }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t, Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const weights = memory.take<Lanes>(d);
        softmax(logits, d, weights);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) image[i * d + j] = weights[i >= j ? i - j : i - j + d];
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t,
                         Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const weights = memory.take<Lanes>(d);
        softmax(logits, d, weights);
        for (int k = 0; k < d; k++) grad_logits[k] = Lanes{};
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) grad_logits[i >= j ? i - j : i - j + d] += grad[i * d + j];
        softmax_gradient(weights, d, grad_logits);
    }
};
