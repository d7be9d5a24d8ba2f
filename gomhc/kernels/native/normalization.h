// Sums that are divided by in turn, with e added: Sinkhorn's iteration of moduli, and DeepSeek-V4's form of it. Included
// once for each instruction set, inside its namespace.
//
//   linear:  M = |Z|;                 rows, then columns, S times;                               B = M
//   V4:      M = softmax of rows + e;  columns, then S - 1 times rows and columns;                B = M^T
//   a step:  M'_ij = M_ij f_i,  f_i = 1 / (sum_j M_ij + e);     backward:  G_ij = f_i (G'_ij - sum_k G'_ik M'_ik)
//
// Linear leaves sums of zero as they are: f = 1. Backward makes the steps again, keeps one over f of each, and takes them
// back one by one.
// d = streams, S = number of iterations, p = d²

template <int D, bool V4> struct Normalization {
    static int64_t scratch(const Part &part) {
        const int64_t d = part.d;
        return 3 * d * d + 2 * d * 2 * part.number;
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t, Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const m = memory.take<Lanes>(d * d), *const unused = memory.take<Lanes>(2 * d);
        start(part, logits, m);
        for (int step = 0; step < steps(part); step++)
            by_rows(step) ? normalize<true>(part, m, unused, unused + d) : normalize<false>(part, m, unused, unused + d);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) image[place<V4>(d, i, j)] = m[i * d + j];
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t,
                         Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const m = memory.take<Lanes>(d * d), *const g = memory.take<Lanes>(d * d);
        Lanes *const sums = memory.take<Lanes>(d * steps(part)), *const factors = memory.take<Lanes>(d * steps(part));
        start(part, logits, m);
        for (int step = 0; step < steps(part); step++) {
            Lanes *const s = sums + step * d, *const f = factors + step * d;
            by_rows(step) ? normalize<true>(part, m, s, f) : normalize<false>(part, m, s, f);
        }
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) g[i * d + j] = grad[place<V4>(d, i, j)];
        for (int step = steps(part) - 1; step >= 0; step--) {
            const Lanes *const s = sums + step * d, *const f = factors + step * d;
            by_rows(step) ? reverse<true>(d, m, g, s, f) : reverse<false>(d, m, g, s, f);
        }
        finish(part, logits, m, g, grad_logits);
    }

  private:
    static int steps(const Part &part) { return 2 * part.number - (V4 ? 1 : 0); }
    static bool by_rows(int step) { return (step % 2 == 0) != V4; }
    template <bool TRANSPOSED> static int place(int d, int i, int j) { return TRANSPOSED ? j * d + i : i * d + j; }

    static void start(const Part &part, const Lanes *logits, Lanes *m) {
        const int d = D ? D : part.d;
        if constexpr (V4) {
            softmax_of_rows(d, logits, m);
            for (int i = 0; i < d * d; i++) m[i] += part.epsilon;
        } else {
            for (int i = 0; i < d * d; i++) {
                const Lanes z = saturated<float>(logits[i]);
                m[i] = z < 0.f ? -z : z;
            }
        }
    }

    static void softmax_of_rows(int d, const Lanes *logits, Lanes *m) {
        for (int i = 0; i < d; i++) {
            Lanes largest = saturated<float>(logits[i * d]), sum{};
            for (int j = 1; j < d; j++) largest = at_least(saturated<float>(logits[i * d + j]), largest);
            for (int j = 0; j < d; j++) {
                m[i * d + j] = exponential<float>(saturated<float>(logits[i * d + j]) - largest);
                sum += m[i * d + j];
            }
            const Lanes factor = 1.f / sum;
            for (int j = 0; j < d; j++) m[i * d + j] *= factor;
        }
    }

    template <bool ROWS> static inline void normalize(const Part &part, Lanes *m, Lanes *sums, Lanes *factors) {
        const int d = D ? D : part.d;
        for (int i = 0; i < d; i++) {
            Lanes sum{};
            for (int j = 0; j < d; j++) sum += m[place<!ROWS>(d, i, j)];
            const Lanes whole = sum + part.epsilon, one = Lanes{} + 1.f, zero{};
            sums[i] = V4 ? whole : sum > zero ? whole : one;
            factors[i] = 1.f / sums[i];
            for (int j = 0; j < d; j++) m[place<!ROWS>(d, i, j)] *= factors[i];
        }
    }

    template <bool ROWS> static inline void reverse(int d, Lanes *m, Lanes *g, const Lanes *sums, const Lanes *factors) {
        for (int i = 0; i < d; i++) {
            Lanes share{};
            for (int j = 0; j < d; j++) share += g[place<!ROWS>(d, i, j)] * m[place<!ROWS>(d, i, j)];
            for (int j = 0; j < d; j++) {
                Lanes &entry = g[place<!ROWS>(d, i, j)];
                entry = (entry - share) * factors[i];
                m[place<!ROWS>(d, i, j)] *= sums[i];
            }
        }
    }

    // From the gradient at M to that at the logits; `m` is free.
    static void finish(const Part &part, const Lanes *logits, Lanes *m, const Lanes *g, Lanes *grad_logits) {
        const int d = D ? D : part.d;
        const Lanes zero{};
        if constexpr (V4) softmax_of_rows(d, logits, m);
        for (int i = 0; i < d; i++) {
            Lanes share{};
            for (int j = 0; V4 && j < d; j++) share += g[i * d + j] * m[i * d + j];
            for (int j = 0; j < d; j++) {
                const Lanes z = logits[i * d + j], entry = g[i * d + j];
                const Lanes own = V4 ? m[i * d + j] * (entry - share) : z > zero ? entry : z < zero ? -entry : zero;
                grad_logits[i * d + j] = unless_saturated<float>(own, z);
            }
        }
    }
};
