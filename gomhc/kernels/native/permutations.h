// Weights of all d! permutations. Included once for each instruction set, inside its namespace.
//
//   w = softmax(z),   B = sum_k w_k P_k;     backward:  g_k = w_k (<P_k, G> - <B, G>)
//
// Permutations stand in lexicographic order, so those that begin with the same column follow each other, and are the
// permutations of one column fewer for the rows that are left: sums are made once for all permutations that share them.
// d = streams, p = d!

template <int D> struct Permutations {
    static constexpr int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }

    static int64_t scratch(const Part &part) { return part.p + part.d * part.d; }

    static void forward(const Part &, const Lanes *logits, Lanes *image, uint32_t, Memory memory) {
        Lanes *const weights = memory.take<Lanes>(factorial(D));
        exponentials(logits, weights);
        combine<D>(weights, image);
        normalize(image);
    }

    static void backward(const Part &, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t, Memory memory) {
        Lanes *const image = memory.take<Lanes>(D * D);
        exponentials(logits, grad_logits);
        combine<D>(grad_logits, image);
        const Lanes factor = normalize(image);
        Lanes mean{};
        for (int i = 0; i < D * D; i++) mean += image[i] * grad[i];
        int columns[D];
        for (int j = 0; j < D; j++) columns[j] = j;
        weigh<D>(grad, columns, -mean, factor, grad_logits);
    }

  private:
    static void exponentials(const Lanes *logits, Lanes *weights) {
        Lanes largest = logits[0];
        for (int k = 1; k < factorial(D); k++) largest = at_least(logits[k], largest);
        for (int k = 0; k < factorial(D); k++) weights[k] = exponential<float>(logits[k] - largest);
    }

    // out = sum_k w_k P_k over the permutations of N columns
    template <int N> static void combine(const Lanes *w, Lanes *out) {
        if constexpr (N == 1) {
            out[0] = w[0];
        } else {
            Lanes rest[(N - 1) * (N - 1)];
            for (int i = N; i < N * N; i++) out[i] = Lanes{};
            for (int first = 0; first < N; first++, w += factorial(N - 1)) {
                combine<N - 1>(w, rest);
                Lanes sum = rest[0];
                for (int j = 1; j < N - 1; j++) sum += rest[j];
                out[first] = sum;
                for (int i = 0; i < N - 1; i++)
                    for (int j = 0; j < N - 1; j++) out[(i + 1) * N + j + (j >= first)] += rest[i * (N - 1) + j];
            }
        }
    }

    // Rows divided by their sums, all of which are the sum of the weights to rounding. Returns one over it.
    static Lanes normalize(Lanes *image) {
        Lanes factor{};
        for (int i = 0; i < D; i++) {
            Lanes sum{};
            for (int j = 0; j < D; j++) sum += image[i * D + j];
            factor = 1.f / sum;
            for (int j = 0; j < D; j++) image[i * D + j] *= factor;
        }
        return factor;
    }

    // w_k <- w_k factor (base + <P_k, G>) over the permutations of N columns, for the last N rows of G
    template <int N>
    static void weigh(const Lanes *grad, const int *columns, Lanes base, Lanes factor, Lanes *w) {
        const Lanes *const row = grad + (D - N) * D;
        if constexpr (N == 1) {
            w[0] = w[0] * factor * (base + row[columns[0]]);
        } else {
            for (int first = 0; first < N; first++, w += factorial(N - 1)) {
                int rest[N - 1];
                for (int j = 0; j < N - 1; j++) rest[j] = columns[j + (j >= first)];
                weigh<N - 1>(grad, rest, base + row[columns[first]], factor, w);
            }
        }
    }
};
