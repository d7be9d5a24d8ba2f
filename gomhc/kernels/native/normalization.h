// Sinkhorn's iteration of moduli: sums that are divided by in turn, with e added. Included once for each instruction set,
// inside its namespace.
//
//   M = |Z|;    M_ij <- M_ij / (sum_k M_ik + e),   M_ij <- M_ij / (sum_k M_kj + e),   S times
//   a step:  M'_ij = M_ij f_i,  f_i = 1 / (sum_j M_ij + e);     backward:  G_ij = f_i (G'_ij - sum_k G'_ik M'_ik)
//
// Sums of zero are left as they are: f = 1. Factors can leave float's range, so the matrix itself is changed. Backward makes
// the steps again, keeps one over f of each, and takes them back one by one. The matrix is gone through once in an iteration:
// columns are multiplied by their factors when the next step comes to their rows.
// d = streams, S = number of iterations, p = d²

template <int D> struct LinearSinkhorn {
    static int64_t scratch(const Part &part) {
        const int64_t d = part.d;
        return d * d + 2 * d * 2 * part.number + 4 * d;
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t, Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const unused = memory.take<Lanes>(2 * d);
        Row<D> columns(d, memory), sums(d, memory);
        start(d, logits, image);
        for (int j = 0; j < d; j++) columns[j] = Lanes{} + 1.f;
        for (int t = 0; t < part.number; t++) iterate(part, image, columns, unused, unused + d, sums);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) image[i * d + j] *= columns[j];
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t,
                         Memory memory) {
        const int d = D ? D : part.d, steps = part.number;
        Lanes *const m = memory.take<Lanes>(d * d);
        Row<D> columns(d, memory), shares(d, memory);
        Lanes *const sums = memory.take<Lanes>(2 * d * steps), *const factors = memory.take<Lanes>(2 * d * steps);
        start(d, logits, m);
        for (int j = 0; j < d; j++) columns[j] = Lanes{} + 1.f;
        for (int t = 0; t < steps; t++) {
            Lanes *const s = sums + 2 * d * t, *const f = factors + 2 * d * t;
            iterate(part, m, columns, s, f, shares);
            for (int j = 0; j < d; j++) s[d + j] = shares[j], f[d + j] = columns[j];
        }
        for (int j = 0; j < d; j++) shares[j] = Lanes{};
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                m[i * d + j] *= columns[j], grad_logits[i * d + j] = grad[i * d + j];
                shares[j] += grad_logits[i * d + j] * m[i * d + j];
            }
        for (int t = steps - 1; t >= 0; t--) reverse(d, m, grad_logits, sums + 2 * d * t, factors + 2 * d * t, shares, columns);
        const Lanes zero{};
        for (int i = 0; i < d * d; i++) {
            const Lanes z = logits[i], entry = grad_logits[i];
            grad_logits[i] = unless_saturated<float>(z > zero ? entry : z < zero ? -entry : zero, z);
        }
    }

  private:
    static void start(int d, const Lanes *logits, Lanes *m) {
        for (int i = 0; i < d * d; i++) {
            const Lanes z = saturated<float>(logits[i]);
            m[i] = z < 0.f ? -z : z;
        }
    }

    static inline Lanes divisor(const Part &part, Lanes sum) {
        const Lanes one = Lanes{} + 1.f, zero{};
        return sum > zero ? sum + part.real : one;
    }

    // Columns come with factors that they still lack, and are left with those of this iteration.
    static inline void iterate(const Part &part, Lanes *m, Row<D> &columns, Lanes *row_sums, Lanes *row_factors, Row<D> &sums) {
        const int d = D ? D : part.d;
        for (int j = 0; j < d; j++) sums[j] = Lanes{};
        for (int i = 0; i < d; i++) {
            Lanes *const row = m + i * d, sum{};
            for (int j = 0; j < d; j++) row[j] *= columns[j], sum += row[j];
            const Lanes whole = divisor(part, sum), factor = 1.f / whole;
            row_sums[i] = whole, row_factors[i] = factor;
            for (int j = 0; j < d; j++) row[j] *= factor, sums[j] += row[j];
        }
        for (int j = 0; j < d; j++) sums[j] = divisor(part, sums[j]), columns[j] = 1.f / sums[j];
    }

    // Columns first, whose shares come with it, then rows; leaves the shares of columns for the iteration before.
    static inline void reverse(int d, Lanes *m, Lanes *g, const Lanes *sums, const Lanes *factors, Row<D> &shares, Row<D> &next) {
        for (int j = 0; j < d; j++) next[j] = Lanes{};
        for (int i = 0; i < d; i++) {
            Lanes *const row = m + i * d, *const own = g + i * d, share{};
            for (int j = 0; j < d; j++) {
                own[j] = (own[j] - shares[j]) * factors[d + j], row[j] *= sums[d + j];
                share += own[j] * row[j];
            }
            const Lanes factor = factors[i], sum = sums[i];
            for (int j = 0; j < d; j++) {
                own[j] = (own[j] - share) * factor, row[j] *= sum;
                next[j] += own[j] * row[j];
            }
        }
        for (int j = 0; j < d; j++) shares[j] = next[j];
    }
};
