// Unit sums and a spectral norm of one. Included once for each instruction set, inside its namespace, after orthogonal.h.
//
//   B = 1/d + U C U^T,   C = Q_1 diag(t) Q_2^T,   t = tanh(z),   Q_i = 2 K_i - I
//   backward:  G_C = U^T G U,   G_1 = G_C Q_2 diag(t),   G_2 = G_C^T Q_1 diag(t),   G_t = diag(Q_1^T G_C Q_2)
//
// U has the columns of Helmert, (1, ..., 1, -k, 0, ..., 0) with k ones, normed: a product with it takes sums from one end.
// d = streams, m = d - 1, p = m²

template <int D> struct SpectralSphere {
    static constexpr int M = D > 1 ? D - 1 : 0;

    static int64_t scratch(const Part &part) {
        const int64_t d = part.d, m = d - 1;
        return 2 * Cayley<M>::scratch(m) + 2 * d * d + 2 * m;
    }

    static void compute(const Part &part, const Doubles *z, const Doubles *grad, Doubles *out, uint32_t lanes, Memory memory) {
        const int d = D ? D : part.d, m = d - 1, p = m * (m - 1) / 2;
        const Cayley<M> one(m, memory), two(m, memory);
        Doubles *const t = memory.take<Doubles>(m), *const norms = memory.take<Doubles>(m);
        Doubles *const c = memory.take<Doubles>(m * m), *const half = memory.take<Doubles>(d * d);
        one.invert_well(z + m, lanes), two.invert_well(z + m + p, lanes);
        for (int k = 0; k < m; k++) t[k] = tangent<double>(z[k]), norms[k] = Doubles{} + 1 / std::sqrt((k + 1.) * (k + 2.));
        if (grad == nullptr) {
            contract(m, one, two, t, c);
            for (int j = 0; j < m; j++) spread(m, norms, c + j, m, half + j, m);
            for (int i = 0; i < d; i++) spread(m, norms, half + i * m, 1, out + i * d, 1);
            for (int i = 0; i < d * d; i++) out[i] += 1. / d;
            return;
        }
        for (int i = 0; i < d; i++) gather(m, norms, grad + i * d, 1, half + i * m, 1);
        for (int j = 0; j < m; j++) gather(m, norms, half + j, m, c + j, m);
        for (int k = 0; k < m; k++) out[k] = Doubles{};
        for (int k = 0; k < m; k++)
            for (int i = 0; i < m; i++) {
                Doubles of_one{}, of_two{};
                for (int j = 0; j < m; j++) of_one += c[i * m + j] * two.rotation(j, k), of_two += c[j * m + i] * one.rotation(j, k);
                out[k] += one.rotation(i, k) * of_one;
                one.g[k * m + i] = of_one * t[k], two.g[k * m + i] = of_two * t[k];
            }
        for (int k = 0; k < m; k++) out[k] *= 1. - t[k] * t[k];
        one.gradient(out + m), two.gradient(out + m + p);
    }

  private:
    static void contract(int m, const Cayley<M> &one, const Cayley<M> &two, const Doubles *t, Doubles *c) {
        for (int i = 0; i < m; i++)
            for (int j = 0; j < m; j++) {
                Doubles sum{};
                for (int k = 0; k < m; k++) sum += one.rotation(i, k) * t[k] * two.rotation(j, k);
                c[i * m + j] = sum;
            }
    }

    // x = U y, with the numbers of both so far apart.
    static void spread(int m, const Doubles *norms, const Doubles *y, int y_stride, Doubles *x, int x_stride) {
        Doubles sum{};
        for (int i = m; i > 0; i--) {
            const Doubles share = y[(i - 1) * y_stride] * norms[i - 1];
            x[i * x_stride] = sum - double(i) * share;
            sum += share;
        }
        x[0] = sum;
    }

    // y = U^T x
    static void gather(int m, const Doubles *norms, const Doubles *x, int x_stride, Doubles *y, int y_stride) {
        Doubles sum = x[0];
        for (int i = 1; i <= m; i++) {
            y[(i - 1) * y_stride] = (sum - double(i) * x[i * x_stride]) * norms[i - 1];
            sum += x[i * x_stride];
        }
    }
};
